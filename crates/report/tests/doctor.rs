//! The terminal's view of a diagnosis.

use unspin_model::diagnosis::{
    Ability, Confidential, Diagnosis, GuestMachine, Help, Hypervisor, Spinlock, State,
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
        steal_s: Some(0.0),
    }
}

#[test]
fn a_diagnosis_as_text() {
    let help =
        |name: &str, state, means: &str| Help { name: name.into(), state, means: means.into() };
    let ability = |name: &str, missing: &[&str]| Ability {
        name: name.into(),
        possible: missing.is_empty(),
        missing: missing.iter().map(|text| (*text).into()).collect(),
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
        abilities: vec![
            ability("see when vCPUs are off", &[]),
            ability(
                "schedule around it",
                &["root: sudo unspin doctor", "sched_ext: a kernel >= 6.12"],
            ),
        ],
    };
    let text = text(&diagnosis);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn a_machine_that_is_not_virtual_as_text() {
    let diagnosis = Diagnosis {
        machine: machine(Confidential::Plain, Hypervisor::None),
        help: Vec::new(),
        abilities: Vec::new(),
    };
    insta::assert_snapshot!(text(&diagnosis));
    let named = machine(Confidential::Plain, Hypervisor::Other("evil\u{1b}[31m".into()));
    assert!(!text(&Diagnosis { machine: named, ..diagnosis }).contains('\u{1b}'));
}
