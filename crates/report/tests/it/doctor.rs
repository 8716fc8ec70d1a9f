//! The terminal's view of a diagnosis.

use unspin_model::diagnosis::{
    Confidential, Diagnosis, GuestMachine, Help, Hypervisor, KernelAdvice, Ready, Spinlock, State,
    Verb,
};
use unspin_report::doctor::text;

fn machine(confidential: Confidential, hypervisor: Hypervisor) -> GuestMachine {
    GuestMachine {
        confidential,
        hypervisor,
        cpus: 8,
        kernel: "6.18.5-cloud-amd64".into(),
        clocksource: Some("tsc".into()),
        spinlock: Spinlock::ParavirtualQueue,
        steal_s: Some(95.0),
        steal_share: Some(0.0123),
    }
}

#[test]
fn a_diagnosis_as_text() {
    let help =
        |name: &str, state, means: &str| Help { name: name.into(), state, means: means.into() };
    let verb = |verb: &str, ready, why: &[&str]| Verb {
        verb: verb.into(),
        ready,
        why: why.iter().map(|text| (*text).into()).collect(),
    };
    let diagnosis = Diagnosis {
        machine: machine(Confidential::Tdx, Hypervisor::Kvm),
        help: vec![
            help(
                "PV spinlocks",
                State::Present,
                "a waiter halts, and is woken when it is its turn",
            ),
            help(
                "steal time",
                State::Absent,
                "the kernel takes time off for time at work; top shows no steal",
            ),
            help("pause exits", State::Unknown, "the host's choice"),
        ],
        verbs: vec![
            verb(
                "watch",
                Ready::Partly,
                &["does not show waits for IPIs: this kernel lacks fentry"],
            ),
            verb("watch --listen", Ready::No, &["root: sudo unspin doctor tries it"]),
            verb("report", Ready::Yes, &[]),
            verb("run", Ready::No, &["sched_ext: Linux 6.12 or newer"]),
        ],
        kernel_advice: Some(KernelAdvice {
            distribution: "Debian GNU/Linux 13 (trixie)".into(),
            known: "Debian 13's own kernel (6.12) has no sched_ext; that of trixie-backports has."
                .into(),
            commands: vec!["sudo apt install -t trixie-backports linux-image-amd64".into()],
            without: vec!["Use fewer vCPUs for work that contends for locks.".into()],
        }),
    };
    for columns in [40, 80, 120] {
        let text = text(&diagnosis, columns);
        let is_command = |line: &str| line.starts_with("    sudo");
        let fits = |line: &str| line.chars().count() <= columns || is_command(line);
        assert!(text.lines().all(fits), "{text}");
        insta::assert_snapshot!(text);
    }
}

#[test]
fn a_machine_that_is_not_virtual_as_text() {
    let diagnosis = Diagnosis {
        machine: machine(Confidential::Plain, Hypervisor::None),
        help: Vec::new(),
        verbs: Vec::new(),
        kernel_advice: None,
    };
    insta::assert_snapshot!(text(&diagnosis, 80));
    let named = machine(Confidential::Plain, Hypervisor::Other("evil\u{1b}[31m".into()));
    assert!(!text(&Diagnosis { machine: named, ..diagnosis }, 80).contains('\u{1b}'));
}
