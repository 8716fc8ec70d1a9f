//! A machine's diagnosis for the terminal.

use unspin_model::diagnosis::{Ability, Confidential, Diagnosis, GuestMachine, Help, Hypervisor};
use unspin_model::diagnosis::{Spinlock, State};

use crate::columns::{paragraph, printable, width};
use crate::format::number;

/// Width of a line.
const COLUMNS: usize = 80;
/// The words between a row's name and its text.
const STATE_COLUMNS: usize = 9;

/// All of it as text of 80 columns, with a closing newline.
pub fn text(diagnosis: &Diagnosis) -> String {
    let mut out = paragraph(&machine(&diagnosis.machine), COLUMNS) + "\n";
    if !diagnosis.help.is_empty() {
        out += "\nThe hypervisor's help against spinning\n";
        out += &rows(diagnosis.help.iter().map(help));
    }
    out += "\nWhat can be done here\n";
    out += &rows(diagnosis.abilities.iter().map(ability));
    out
}

/// What the machine is, in a few words without a full stop.
pub fn kind(machine: &GuestMachine) -> String {
    let kind = match machine.confidential {
        Confidential::Plain => "a plain VM",
        Confidential::Sev => "a confidential VM (AMD SEV)",
        Confidential::SevEs => "a confidential VM (AMD SEV-ES)",
        Confidential::SevSnp => "a confidential VM (AMD SEV-SNP)",
        Confidential::SevUnknown => {
            "a VM on a CPU that knows SEV (whether it is confidential could not be found out: \
             try as root, with the module msr)"
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
    let steal =
        machine.steal_s.map_or("none counted".into(), |s| format!("{} s so far", number(s)));
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

fn ability(ability: &Ability) -> [String; 3] {
    let missing = match ability.possible {
        true => String::new(),
        false => format!("missing: {}", ability.missing.join("; ")),
    };
    [ability.name.clone(), if ability.possible { "yes" } else { "no" }.into(), missing]
}

/// Name, state and a text that is wrapped in its own column.
fn rows(rows: impl Iterator<Item = [String; 3]>) -> String {
    let rows: Vec<_> = rows.collect();
    let names = rows.iter().map(|[name, ..]| width(name)).max().unwrap_or(0);
    let indent = 2 + names + 2 + STATE_COLUMNS;
    let row = |[name, state, text]: &[String; 3]| {
        let wrapped = paragraph(text, COLUMNS.saturating_sub(indent));
        let text = wrapped.lines().collect::<Vec<_>>().join(&format!("\n{}", " ".repeat(indent)));
        let line = format!("  {:names$}  {state:STATE_COLUMNS$}{text}", printable(name));
        line.trim_end().to_owned() + "\n"
    };
    rows.iter().map(row).collect()
}
