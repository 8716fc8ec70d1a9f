//! A machine's diagnosis for the terminal.

use unspin_model::diagnosis::{
    Confidential, Diagnosis, GuestMachine, Help, Hypervisor, KernelAdvice, Ready, Spinlock, State,
    Verb,
};

use crate::columns::{paragraph, printable, width};
use crate::format::{percent, time};

/// Width of the words between a row's name and its text.
const STATE_COLUMNS: usize = 9;
/// Minimum width of the texts of rows; if there is less room, they begin on a line of their own.
const TEXT_MIN: usize = 24;

/// Returns the diagnosis as text of `columns` columns, with a closing newline.
pub fn text(diagnosis: &Diagnosis, columns: usize) -> String {
    let mut out = paragraph(&machine(&diagnosis.machine), columns) + "\n";
    if !diagnosis.verbs.is_empty() {
        out += &format!("\n{}\n", paragraph(&summary(&diagnosis.verbs), columns));
        let same = |a: &Verb, b: &Verb| (a.ready, &a.why) == (b.ready, &b.why);
        out += &rows(diagnosis.verbs.chunk_by(same).map(verbs), columns);
    }
    out += &diagnosis.kernel_advice.iter().map(|it| advice(it, columns)).collect::<String>();
    if !diagnosis.help.is_empty() {
        out += "\nThe hypervisor's help against spinning\n";
        out += &rows(diagnosis.help.iter().map(help), columns);
    }
    out
}

/// Returns the advice on what to begin with.
fn summary(verbs: &[Verb]) -> String {
    let ready = |name: &str| verbs.iter().any(|it| it.verb == name && it.ready != Ready::No);
    let privileged = !verbs.iter().flat_map(|it| &it.why).any(|why| why.starts_with("root:"));
    let next = match () {
        () if ready("watch") => "begin with `sudo unspin watch --once --for 10`",
        () if !privileged => "`sudo unspin doctor` tries what needs root, too",
        () => "this kernel shows too little: see why below",
    };
    format!("What works here; {next}")
}

/// Returns one row for consecutive verbs that have the same result.
fn verbs(verbs: &[Verb]) -> [String; 3] {
    let names: Vec<&str> = verbs.iter().map(|it| it.verb.as_str()).collect();
    let ready = match verbs[0].ready {
        Ready::Yes => "yes",
        Ready::Partly => "partly",
        Ready::No => "no",
    };
    [names.join(", "), ready.into(), verbs[0].why.join("; ")]
}

/// Formats the advice without wrapping its commands, so that users can copy them.
fn advice(advice: &KernelAdvice, columns: usize) -> String {
    let indented = |text: &str| {
        let wrapped = paragraph(text, columns.saturating_sub(2));
        wrapped.lines().map(|line| format!("  {line}\n")).collect::<String>()
    };
    let mut out = format!(
        "\n{}\n",
        paragraph(&format!("A kernel with sched_ext on {}", advice.distribution), columns)
    );
    out += &indented(&advice.known);
    for command in &advice.commands {
        out += &format!("    {}\n", printable(command));
    }
    out += "\nWithout sched_ext\n";
    out += &advice.without.iter().map(|text| indented(text)).collect::<String>();
    out
}

/// Returns the kind of machine in a few words, without a full stop.
pub fn kind(machine: &GuestMachine) -> String {
    let kind = match machine.confidential {
        Confidential::Plain => "a plain VM",
        Confidential::Sev => "a confidential VM (AMD SEV)",
        Confidential::SevEs => "a confidential VM (AMD SEV-ES)",
        Confidential::SevSnp => "a confidential VM (AMD SEV-SNP)",
        Confidential::SevUnknown => {
            "a VM on a CPU that knows SEV (whether it is confidential is not known: \
             `sudo modprobe msr`, then `sudo unspin doctor`)"
        }
        Confidential::Tdx => "a confidential VM (Intel TDX)",
    };
    match &machine.hypervisor {
        Hypervisor::None => "not a virtual machine, or one that hides it".to_owned(),
        Hypervisor::Kvm => format!("{kind} under KVM"),
        Hypervisor::HyperV => format!("{kind} under Hyper-V"),
        Hypervisor::Vmware => format!("{kind} under VMware"),
        Hypervisor::Xen => format!("{kind} under Xen"),
        Hypervisor::Tcg => format!("{kind} under QEMU's software emulation"),
        Hypervisor::Other(name) if name.is_empty() => format!("{kind} under an unnamed hypervisor"),
        Hypervisor::Other(name) => format!("{kind} under {name}"),
    }
}

fn machine(machine: &GuestMachine) -> String {
    let under = kind(machine);
    let spinlock = match machine.spinlock {
        Spinlock::ParavirtualQueue => "PV queue",
        Spinlock::NativeQueue => "native queue",
        Spinlock::TestAndSet => "test-and-set",
        Spinlock::Unknown => "of unknown kind",
    };
    let steal = match (machine.steal_s, machine.steal_share) {
        (None, _) => "not counted".to_owned(),
        (Some(0.0), _) => "none since boot".into(),
        (Some(s), None) => format!("{} since boot", time(s)),
        (Some(s), Some(share)) => {
            format!("{} of CPU time since boot ({})", percent(share), time(s))
        }
    };
    format!(
        "This is {under}. CPUs: {}. Linux {}. Clock: {}. Kernel spinlocks: {spinlock}. Steal time: {steal}.",
        machine.cpus,
        machine.kernel,
        machine.clocksource.as_deref().unwrap_or("unknown"),
    )
}

fn help(help: &Help) -> [String; 3] {
    let state = match help.state {
        State::Present => "yes",
        State::Absent => "no",
        State::Unknown => "unknown",
    };
    [help.name.clone(), state.into(), help.means.clone()]
}

/// Formats rows of a name, a state and a text. The text is wrapped in its own column, or below if
/// that is narrow.
fn rows(rows: impl Iterator<Item = [String; 3]>, columns: usize) -> String {
    let rows: Vec<_> = rows.collect();
    let names = rows.iter().map(|[name, ..]| width(name)).max().unwrap_or(0);
    let beside = 2 + names + 2 + STATE_COLUMNS;
    let is_beside = columns >= beside + TEXT_MIN;
    let indent = if is_beside { beside } else { 4 };
    let row = |[name, state, text]: &[String; 3]| {
        let wrapped = paragraph(text, columns.saturating_sub(indent));
        let mut line = format!("  {:names$}  {state:STATE_COLUMNS$}", printable(name));
        for (nth, part) in wrapped.lines().enumerate() {
            if nth > 0 || !is_beside {
                line = format!("{}\n{}", line.trim_end(), " ".repeat(indent));
            }
            line += part;
        }
        line.trim_end().to_owned() + "\n"
    };
    rows.iter().map(row).collect()
}
