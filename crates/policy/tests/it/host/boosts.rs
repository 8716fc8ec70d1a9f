//! Tests of each policy's verdict on each kind of pause-loop candidate.

use unspin_policy::boost::{Facts, Policy, Reason};

use Policy::{Ecs, Mainline, Off, Strict, Y2009, Y2011, Y2012, Y2013, Y2017, Y2019};
use Reason::{
    Halted as Halt, NoIpi, NoYield, NotPreempted as Woken, NotReady as Busy, Spinning as Spin,
    UserMode as User, Yes,
};

const POLICIES: [Policy; 9] = [Off, Y2009, Y2011, Y2012, Y2013, Y2017, Y2019, Mainline, Strict];

fn spinner(in_kernel: u32) -> Facts {
    Facts { vcpu: 0, in_kernel, ..Facts::default() }
}

fn kernel() -> Facts {
    Facts { vcpu: 1, ready: 1, preempted: 1, in_kernel: 1, ..Facts::default() }
}

fn user() -> Facts {
    Facts { in_kernel: 0, ..kernel() }
}

fn with_ipi(mut facts: Facts, from: u32) -> Facts {
    (facts.pending, facts.posted) = (1, 1);
    facts.ipi_sent(from);
    facts
}

#[test]
fn each_policy_judges_each_candidate_as_its_kernel_does() {
    let running = Facts { vcpu: 1, in_kernel: 1, ..Facts::default() };
    let woken = Facts { preempted: 0, in_kernel: 0, ..kernel() };
    let halted = Facts { vcpu: 1, halted: 1, in_kernel: 1, ..Facts::default() };
    let halted_ready = Facts { ready: 1, pending: 1, ..halted };
    let not_posted = Facts { posted: 0, ..with_ipi(user(), 0) };
    let spinning = Facts { spinning: 1, ..kernel() };
    let again = Facts { dy_eligible: 1, ..spinning };
    let no = NoYield;
    #[rustfmt::skip]
    let table = [
        // The candidate's name, its facts, and the verdicts of 2011, 2012, 2013, 2017, 2019,
        // mainline and strict.
        ("kernel",         kernel(),             [Yes, Yes, Yes, Yes, Yes, Yes, Yes]),
        ("user",           user(),               [Yes, Yes, Yes, User, User, User, NoIpi]),
        ("user, my IPI",   with_ipi(user(), 0),  [Yes, Yes, Yes, User, User, Yes, Yes]),
        ("user, an IPI",   with_ipi(user(), 70), [Yes, Yes, Yes, User, User, Yes, NoIpi]),
        ("user, no APICv", not_posted,           [Yes, Yes, Yes, User, User, User, Yes]),
        ("running",        running,              [Busy; 7]),
        ("running, IPI",   with_ipi(running, 0), [Busy; 7]),
        ("woken",          woken,                [Yes, Yes, Woken, Woken, Yes, Yes, Woken]),
        ("woken, my IPI",  with_ipi(woken, 0),   [Yes, Yes, Woken, Woken, Yes, Yes, Yes]),
        ("halted",         halted,               [Halt; 7]),
        ("halted, woken",  halted_ready,         [Halt, Halt, Halt, Halt, Yes, Yes, Woken]),
        ("spinning",       spinning,             [Yes, Spin, Spin, Spin, Spin, Spin, Spin]),
        ("spinning again", again,                [Yes, Yes, Yes, Yes, Yes, Yes, Yes]),
    ];
    for (name, candidate, verdicts) in table {
        let verdicts = [[no, no].as_slice(), &verdicts].concat();
        for (policy, wanted) in POLICIES.into_iter().zip(verdicts) {
            let found = spinner(1).verdict(&candidate, policy);
            assert_eq!(found, wanted, "{name}, {policy:?}");
        }
    }
}

#[test]
fn a_spinner_in_user_mode_takes_candidates_in_either_mode() {
    for policy in [Y2017, Y2019, Mainline] {
        assert_eq!(spinner(0).verdict(&user(), policy), Yes, "{policy:?}");
    }
    assert_eq!(spinner(0).verdict(&user(), Strict), NoIpi, "strict is strict");
}

#[test]
fn nobody_yields_to_itself() {
    let me = Facts { vcpu: 1, ..spinner(1) };
    assert_eq!(me.verdict(&kernel(), Mainline), Reason::Itself);
}

#[test]
fn one_that_spins_is_chosen_every_other_time() {
    let mut candidate = Facts { spinning: 1, ..kernel() };
    let mut found = Vec::new();
    for _ in 0..4 {
        let verdict = spinner(1).verdict(&candidate, Mainline);
        candidate.judged(verdict);
        found.push(verdict);
    }
    assert_eq!(found, [Spin, Yes, Spin, Yes]);
    let mut user = Facts { spinning: 1, ..user() };
    user.judged(spinner(1).verdict(&user, Mainline));
    assert_eq!(user.dy_eligible, 0, "its mode ruled it out before");
}

#[test]
fn ecs_prefers_one_in_a_critical_section_and_then_looks_as_mainline() {
    let critical = Facts { critical: 1, ..kernel() };
    assert_eq!([0, 1, 2].map(|n| Ecs.look(n)), [Some(Ecs), Some(Mainline), None]);
    assert_eq!([0, 1].map(|n| Mainline.look(n)), [Some(Mainline), None]);
    assert_eq!(spinner(1).verdict(&critical, Ecs), Yes);
    assert_eq!(spinner(1).verdict(&kernel(), Ecs), Reason::NotCritical);
    let woken = Facts { preempted: 0, ..critical };
    assert_eq!(spinner(1).verdict(&woken, Ecs), Reason::NotCritical, "the fact is of its last run");
    assert_eq!(spinner(1).verdict(&Facts { ready: 0, ..critical }, Ecs), Busy);
    assert_eq!(spinner(1).verdict(&Facts { spinning: 1, ..critical }, Ecs), Spin);
}

#[test]
fn an_interrupt_has_arrived_once_the_vcpu_enters_the_guest() {
    let mut candidate = with_ipi(user(), 255);
    let me = Facts { vcpu: 255, ..spinner(1) };
    assert_eq!(me.verdict(&candidate, Strict), Yes);
    candidate.entered();
    assert_eq!(me.verdict(&candidate, Strict), NoIpi);
}

#[test]
fn a_vcpu_that_enters_the_guest_neither_spins_nor_has_interrupts_waiting() {
    let waiting = Facts { pending: 1, posted: 1, ..user() };
    for mut candidate in [waiting, Facts { spinning: 1, dy_eligible: 1, ..waiting }] {
        candidate.entered();
        assert_eq!(candidate, user());
    }
}

#[test]
fn candidates_come_round_robin_after_the_last_one() {
    let order = |policy: Policy| (0..4).map(|i| policy.order(2, 4, i)).collect::<Vec<_>>();
    assert_eq!(order(Mainline), [Some(3), Some(0), Some(1), Some(2)]);
    assert_eq!(order(Y2011), order(Strict));
    assert_eq!(order(Off), [None; 4]);
    assert_eq!(Mainline.order(u32::MAX, 3, 0), Some(0), "none was boosted yet");
    assert_eq!(Mainline.order(0, 4, 4), None);
}

#[test]
fn only_that_of_2009_sleeps_and_later_ones_give_up() {
    let sleeps: Vec<u64> = POLICIES.into_iter().map(Policy::sleep_ns).collect();
    assert_eq!(sleeps, [0, 100_000, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((Y2012.attempts(), Y2013.attempts(), Strict.attempts()), (None, Some(3), Some(3)));
}

#[test]
fn the_facts_have_the_layout_of_the_c_side() {
    assert_eq!(size_of::<Facts>(), Facts::size());
}
