//! Tests of reflected pause loops: the agreement, the form of answers, and the host's reaction.

use unspin_policy::vnae::{Answer, Arm, Outcome, State, Vnae, sham};

use Arm::{Both, Cpl, Force, Off, Sham, Vcpu};
use Outcome::{OwnChoice, Refused, TargetRunning, Yielded};
use State::{Halted, Invalid, Nobody, Ready, Running};

const PAUSE: u64 = 1;
const HLT: u64 = 2;
/// INFO2 of an answer that names no vCPU.
const NOBODY: u64 = u64::MAX;
/// INFO1: version 1, the owner of a spinlock, and a valid privilege level.
const OWNER: u64 = 1 | 1 << 8 | 1 << 16;

fn agreed() -> Vnae {
    let mut vcpu = Vnae::default();
    assert_eq!(vcpu.config(1, PAUSE), Some(PAUSE));
    vcpu
}

fn answer() -> Answer {
    Answer::parse(OWNER, 3 | 5 << 32, 0)
}

#[test]
fn nothing_is_reflected_without_an_agreement() {
    let arms = [Off, Arm::None, Cpl, Vcpu, Both, Sham];
    assert!(arms.iter().all(|arm| !Vnae::default().reflects(*arm)));
    assert!(arms[1..].iter().all(|arm| agreed().reflects(*arm)));
    assert!(!agreed().reflects(Off));
    assert!(Vnae::default().reflects(Force), "the run that must fail");
}

#[test]
fn only_what_is_there_is_granted_and_a_reset_takes_it_back() {
    let mut vcpu = Vnae::default();
    assert_eq!(vcpu.config(1, PAUSE | HLT), Some(PAUSE));
    assert_eq!(vcpu.config(2, PAUSE), None, "another version");
    assert_eq!(vcpu.config(1 | 1 << 8, PAUSE), None, "another operation");
    assert!(vcpu.reflects(Both), "what makes no sense changes nothing");
    vcpu.reset();
    assert_eq!(vcpu, Vnae::default());
    assert!(!vcpu.reflects(Both));
    assert_eq!(agreed().config(1, HLT), Some(0), "the guest gives it back");
}

#[test]
fn one_reflection_is_outstanding_until_the_next_vmgexit() {
    let mut vcpu = agreed();
    assert!(!vcpu.vmgexit());
    assert!(vcpu.reflects(Both));
    assert!(!vcpu.reflects(Both));
    assert!(vcpu.vmgexit());
    assert!(!vcpu.vmgexit(), "an answer counts once");
    assert!(vcpu.reflects(Both));
}

#[test]
fn answers_are_read_field_by_field() {
    let read = answer();
    assert_eq!((read.valid, read.kind, read.user, read.name), (1, 1, 0, [3, 5]));
    assert_eq!(Answer::parse(OWNER, NOBODY, 3).user, 1);
    assert_eq!(Answer::parse(1 | 1 << 8, NOBODY, 3).user, 0, "the level is not valid");
    assert_eq!(Answer::parse(1, NOBODY, 0).name, [u32::MAX; 2]);
    for bad in [0, 2, 1 | 5 << 8, 1 | 1 << 17, 1 | 1 << 63] {
        assert_eq!(Answer::parse(bad, NOBODY, 0).valid, 0, "{bad:#x}");
    }
}

#[test]
fn the_first_named_one_that_runs_or_waits_counts() {
    #[rustfmt::skip]
    let table = [
        ([Ready, Nobody],    (Yielded, 0)),
        ([Ready, Ready],     (Yielded, 0)),
        ([Running, Ready],   (TargetRunning, 0)),
        ([Halted, Ready],    (Yielded, 1)),
        ([Nobody, Ready],    (Yielded, 1)),
        ([Invalid, Ready],   (Yielded, 1)),
        ([Running, Nobody],  (TargetRunning, 0)),
        ([Running, Running], (TargetRunning, 0)),
        ([Halted, Running],  (TargetRunning, 1)),
        ([Invalid, Nobody],  (Refused, 0)),
        ([Halted, Nobody],   (OwnChoice, 0)),
        ([Nobody, Nobody],   (OwnChoice, 0)),
    ];
    for (states, wanted) in table {
        for arm in [Vcpu, Both, Sham, Force] {
            let verdict = answer().decide(arm, true, states);
            assert_eq!((verdict.outcome, verdict.name), wanted, "{states:?}, {arm:?}");
        }
        for arm in [Arm::None, Cpl] {
            assert_eq!(answer().decide(arm, true, states).outcome, OwnChoice, "{states:?}");
        }
    }
}

#[test]
fn the_privilege_level_counts_where_it_is_used() {
    let user = Answer::parse(OWNER, NOBODY, 3);
    let in_kernel = |arm, answer: &Answer| answer.decide(arm, true, [Nobody; 2]).in_kernel;
    assert_eq!([Arm::None, Vcpu, Sham].map(|arm| in_kernel(arm, &user)), [1; 3]);
    assert_eq!([Cpl, Both, Force].map(|arm| in_kernel(arm, &user)), [0; 3]);
    assert_eq!([Cpl, Both].map(|arm| in_kernel(arm, &answer())), [1; 2]);
}

#[test]
fn an_answer_that_nobody_asked_for_is_refused() {
    for arm in [Arm::None, Cpl, Vcpu, Both, Sham, Force] {
        assert_eq!(answer().decide(arm, false, [Ready; 2]).outcome, Refused, "{arm:?}");
        let malformed = Answer::parse(0, 3, 0);
        assert_eq!(malformed.decide(arm, true, [Ready; 2]).outcome, Refused, "{arm:?}");
    }
}

#[test]
fn the_sham_draws_each_waiting_vcpu_alike() {
    let drawn: Vec<_> = (0..6).map(|random| sham(random, 3)).collect();
    assert_eq!(drawn, [0, 1, 2, 0, 1, 2].map(Some));
    assert_eq!(sham(7, 0), None);
}
