//! Spins whose causes are known.

use proptest::prelude::*;
use unspin_model::Session;
use unspin_model::episode::{Cause, Owner, OwnerState, Spin, Taken, Wait};
use unspin_model::session::FoundOff;
use unspin_trace::digest::digest;
use unspin_trace::episodes::{burned_ns, explain};
use unspin_trace::totals::{Sum, Totals};

const MS: u64 = 1_000_000;

fn spin(wait: Wait, vcpu: u16, begin_ms: u64, end_ms: u64) -> Spin {
    Spin {
        wait,
        lock: if wait == Wait::Ipi { 0 } else { 0xffff_8880_0000_1000 },
        asleep: false,
        vcpu,
        tid: 100 + u32::from(vcpu),
        begin_ns: begin_ms * MS,
        end_ns: end_ms * MS,
        halted_ns: 0,
        owner: None,
        before: None,
        site: "do_something".into(),
    }
}

fn off(vcpu: u16, start_ms: u64, end_ms: u64) -> FoundOff {
    FoundOff {
        vcpu,
        start_ns: start_ms * MS,
        end_ns: end_ms * MS,
        start_error_ns: 0,
        was_idle: false,
    }
}

fn causes(spins: Vec<Spin>, offs: &[FoundOff]) -> Vec<(Cause, u64)> {
    explain(spins, offs).into_iter().map(|e| (e.cause, e.wasted_ns / MS)).collect()
}

#[test]
fn a_halted_waiter_burns_nothing() {
    // The holder is off for eight of ten milliseconds; the waiter is off for two, halted for six.
    let spins = vec![Spin {
        before: Some(Taken { vcpu: 1, t_ns: 10 * MS }),
        halted_ns: 6 * MS,
        ..spin(Wait::Spinlock, 0, 10, 20)
    }];
    let offs = [off(1, 10, 18), off(0, 18, 20)];
    assert_eq!(burned_ns(&spins, &offs), 2 * MS);
    let episode = &explain(spins, &offs)[0];
    let parts = (episode.burned_ns() / MS, episode.blocked_ns / MS);
    assert_eq!((episode.cause, parts), (Cause::HolderOff, (2, 6)));
}

#[test]
fn the_owner_of_a_mutex_is_off_or_does_not_run_or_works() {
    let owner = |vcpu, state| Some(Owner { tid: 7, vcpu, state, delay_ns: 0 });
    let running = OwnerState::Running;
    let spins = [owner(1, running), owner(2, OwnerState::Runnable), owner(2, running)]
        .map(|owner| Spin { owner, ..spin(Wait::Mutex, 0, 10, 20) });
    let found = causes(spins.to_vec(), &[off(1, 11, 19)]);
    let expected = [(Cause::HolderOff, 8), (Cause::HolderPreempted, 10), (Cause::Plain, 10)];
    assert_eq!(found, expected);
}

#[test]
fn a_wait_that_slept_has_a_cause_only_where_its_owner_is_known() {
    let owner = |state| Some(Owner { tid: 7, vcpu: 1, state, delay_ns: 0 });
    let waits = [None, owner(OwnerState::Running), owner(OwnerState::Asleep)].map(|owner| Spin {
        owner,
        asleep: true,
        ..spin(Wait::Futex, 0, 10, 20)
    });
    // The waiter's own off time changes nothing, because the waiter slept.
    let found = causes(waits.to_vec(), &[off(1, 11, 19), off(0, 11, 19)]);
    let expected = [(Cause::Plain, 10), (Cause::HolderOff, 8), (Cause::HolderOff, 8)];
    assert_eq!(found, expected);
}

#[test]
fn an_owner_that_had_to_share_its_vcpu_is_why_a_wait_lasted() {
    let owner = |delay_ms| {
        Some(Owner { tid: 7, vcpu: 1, state: OwnerState::Running, delay_ns: delay_ms * MS })
    };
    let waits = [owner(6), owner(4), owner(40)].map(|owner| Spin {
        owner,
        asleep: true,
        ..spin(Wait::Mutex, 0, 10, 20)
    });
    let expected = [(Cause::HolderPreempted, 6), (Cause::Plain, 10), (Cause::HolderPreempted, 10)];
    assert_eq!(causes(waits.to_vec(), &[]), expected);
}

#[test]
fn who_took_a_spinlock_meanwhile_holds_it() {
    let before = Some(Taken { vcpu: 2, t_ns: 12 * MS });
    let spins = vec![Spin { before, ..spin(Wait::Spinlock, 0, 10, 20) }];
    assert_eq!(causes(spins.clone(), &[off(2, 13, 19)]), [(Cause::HolderOff, 6)]);
    // vCPU 2 was off only as a waiter, before it had the lock; then the lock was passed on at once.
    let soon = Some(Taken { vcpu: 2, t_ns: 20 * MS - 1 });
    let spins = vec![Spin { before: soon, ..spin(Wait::Spinlock, 0, 10, 20) }];
    assert_eq!(causes(spins, &[off(2, 10, 12)]), [(Cause::Plain, 10)]);
}

#[test]
fn a_waiter_in_front_that_is_off_keeps_those_behind_it_waiting() {
    let front = spin(Wait::Spinlock, 1, 9, 19);
    let back = spin(Wait::Spinlock, 0, 10, 20);
    let found = causes(vec![front, back], &[off(1, 11, 19)]);
    // The waiter in front spun for 2 ms and was off for the rest.
    assert_eq!(found, [(Cause::Plain, 2), (Cause::WaiterOff, 8)]);
}

/// The recorder saw no vCPU off, because all had interrupts disabled.
#[test]
fn a_spinlock_that_is_passed_on_late_had_somebody_off() {
    let taken = |vcpu, t_ms: u64| Some(Taken { vcpu, t_ns: t_ms * MS });
    let mine = |before| Spin { before, ..spin(Wait::Spinlock, 0, 10, 20) };
    assert_eq!(causes(vec![mine(taken(2, 12))], &[]), [(Cause::HolderOff, 8)]);
    // The spinning vCPU itself was off.
    assert_eq!(causes(vec![mine(taken(2, 12))], &[off(0, 12, 20)]), [(Cause::Plain, 2)]);
    // A waiter in front got the lock late, then this one got it at once.
    let in_front = Spin { before: taken(3, 11), ..spin(Wait::Spinlock, 1, 10, 19) };
    let both = causes(vec![mine(taken(1, 19)), in_front.clone()], &[]);
    assert_eq!(both[0], (Cause::WaiterOff, 9));
    // Many short critical sections also make a long wait, without any vCPU off.
    let short = |vcpu: u16| Spin {
        before: Some(Taken { vcpu: vcpu + 1, t_ns: (19 - u64::from(vcpu)) * MS + 1 }),
        ..spin(Wait::Spinlock, vcpu, 10, 20 - u64::from(vcpu))
    };
    let all = causes((0..9).map(short).collect(), &[]);
    assert_eq!(all[0], (Cause::Plain, 10), "{all:?}");
    // A thread may hold a mutex for long.
    let mutex = Spin { before: taken(2, 12), ..spin(Wait::Mutex, 0, 10, 20) };
    assert_eq!(causes(vec![mutex], &[])[0].0, Cause::Plain);
}

#[test]
fn a_holder_that_nothing_names_is_guessed_from_when_it_is_back() {
    let one = || vec![spin(Wait::Spinlock, 0, 10, 20)];
    assert_eq!(causes(one(), &[off(3, 9, 20)]), [(Cause::HolderOff, 10)]);
    // vCPU 3 was back long before the spin ended.
    assert_eq!(causes(one(), &[off(3, 9, 17)]), [(Cause::Plain, 10)]);
    assert!(explain(one(), &[off(3, 9, 20)])[0].confidence < 0.7);
}

#[test]
fn a_shootdown_waits_for_the_slowest_vcpu() {
    let one = || vec![spin(Wait::Ipi, 0, 10, 20)];
    assert_eq!(causes(one(), &[off(1, 10, 12), off(2, 10, 19)]), [(Cause::IpiOff, 9)]);
    assert_eq!(causes(one(), &[off(0, 10, 19)]), [(Cause::Plain, 1)]);
}

#[test]
fn what_the_spinner_was_off_itself_is_not_wasted() {
    let owner = Some(Owner { tid: 7, vcpu: 1, state: OwnerState::Running, delay_ns: 0 });
    let spins = vec![Spin { owner, ..spin(Wait::Mutex, 0, 10, 20) }];
    let offs = [off(1, 10, 20), off(0, 14, 20)];
    assert_eq!(burned_ns(&spins, &offs), 4 * MS);
    assert_eq!(causes(spins, &offs), [(Cause::HolderOff, 4)]);
}

#[test]
fn a_session_is_summed_up_by_cause_and_by_place() {
    let owner = |vcpu, state| Some(Owner { tid: 7, vcpu, state, delay_ns: 0 });
    let (running, runnable) = (OwnerState::Running, OwnerState::Runnable);
    let mut session = Session {
        vcpus: 2,
        start_ns: 0,
        end_ns: 1_000 * MS,
        offs: vec![off(1, 11, 19), off(1, 30, 32)],
        beats: 4_000,
        lost: 3,
        ..Session::default()
    };
    session.spins = vec![
        Spin { owner: owner(1, running), ..spin(Wait::Mutex, 0, 10, 20) },
        Spin { owner: owner(1, runnable), asleep: true, ..spin(Wait::Mutex, 0, 40, 44) },
        Spin { site: "elsewhere".into(), ..spin(Wait::Spinlock, 0, 50, 51) },
    ];
    let digest = digest(&session);
    assert_eq!((digest.seconds, digest.spins, digest.lost), (1.0, 2, 3));
    assert_eq!((digest.spin_s, digest.waits, digest.wait_s), (0.011, 1, 0.004));
    assert_eq!((digest.off[1].intervals, digest.off[1].off_s), (2, 0.010));
    assert_eq!(digest.off_ms.map(|all| all[3]), Some(8.0));
    assert!((digest.beats_per_s - 2_000.0).abs() < 1e-9);
    let causes: Vec<_> = digest.causes.iter().map(|c| (c.cause, c.episodes)).collect();
    let expected = [(Cause::HolderOff, 1), (Cause::Plain, 1), (Cause::HolderPreempted, 1)];
    assert_eq!(causes, expected);
    assert_eq!((digest.causes[2].wasted_s, digest.causes[2].blocked_s), (0.0, 0.004));
    assert_eq!((&*digest.sites[0].site, digest.sites[0].episodes), ("do_something", 2));
    assert_eq!(digest.sites[0].cause, Cause::HolderOff);
}

#[test]
fn no_vcpu_is_off_for_longer_than_a_session() {
    let offs = vec![off(0, 5, 30), off(1, 90, 120)];
    let (start_ns, end_ns) = (10 * MS, 100 * MS);
    let digest = digest(&Session { vcpus: 2, start_ns, end_ns, offs, ..Session::default() });
    assert_eq!([0, 1].map(|vcpu| digest.off[vcpu].off_s), [0.02, 0.01]);
    assert_eq!(digest.off_ms.map(|all| all[3]), Some(30.0), "lengths are whole");
}

/// A forged file can have any times.
#[test]
fn sums_end_where_numbers_do() {
    let ever = |vcpu, asleep| Spin {
        end_ns: u64::MAX,
        halted_ns: u64::MAX / 2,
        asleep,
        ..spin(Wait::Mutex, vcpu, 0, 0)
    };
    let spins = [0, 0, 1, 1, 2, 2].map(|vcpu| [ever(vcpu, false), ever(vcpu, true)]).concat();
    let off = FoundOff { end_ns: u64::MAX, ..off(1, 0, 0) };
    let (end_ns, offs) = (u64::MAX, vec![off; 2]);
    let session = Session { vcpus: 3, end_ns, offs, spins, lost: 1, ..Session::default() };
    let (most_s, digest) = (u64::MAX as f64 / 1e9, digest(&session));
    assert_eq!((digest.wait_s, digest.halted_s), (most_s, most_s));
    assert_eq!(digest.off[1].off_s, most_s);
    assert_eq!(Totals::of(&session).off[1], Sum { count: 2, ns: u64::MAX });
}

#[test]
fn figures_have_no_more_digits_than_are_meant() {
    let spins = (0..9).map(|n| spin(Wait::Spinlock, 0, 10 * n, 10 * n + 7)).collect();
    let digest =
        digest(&Session { vcpus: 1, end_ns: 100 * MS, beats: 1, spins, ..Session::default() });
    let text = serde_json::to_string(&digest.causes).expect("JSON");
    assert!(text.contains(r#""wasted_s":0.063,"blocked_s":0.0,"confidence":0."#), "{text}");
    assert!(digest.causes[0].confidence.to_string().len() <= 5, "{text}");
}

#[test]
fn sums_that_grow_know_of_what_was_found_before() {
    let owner = Some(Owner { tid: 7, vcpu: 1, state: OwnerState::Running, delay_ns: 0 });
    let wait = Spin { owner, asleep: true, ..spin(Wait::Mutex, 0, 10, 500) };
    let (before, last) = (off(1, 12, 400), off(1, 450, 490));
    let mut totals = Totals::new(2);
    totals.add(0.4, &[before], &[before], vec![], vec![], 0);
    totals.add(0.2, &[last], &[before, last], vec![], vec![wait], 1);
    let expected = Sum { count: 1, ns: 428 * MS };
    let causes = totals.causes.expect("each was watched");
    assert_eq!(causes.waits, [((Wait::Mutex, Cause::HolderOff), expected)].into());
    assert_eq!((totals.off[1], causes.lost), (Sum { count: 2, ns: 428 * MS }, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    /// No cause wastes more time than a spin lasted, even if findings repeat or are out of order.
    #[test]
    fn no_cause_lasts_longer_than_the_wait(
        offs in prop::collection::vec((0..3_u16, 0..40_u64, 0..20_u64), 0..12),
        waits in prop::collection::vec(
            (0..3_u16, 0..40_u64, 0..20_u64, any::<bool>(), 0..3_u16, 0..60_u64, 0..5_usize),
            1..6,
        ),
    ) {
        let offs: Vec<FoundOff> =
            offs.into_iter().map(|(vcpu, start, len)| off(vcpu, start, start + len)).collect();
        let kinds = [Wait::Spinlock, Wait::Mutex, Wait::Rwsem, Wait::Futex, Wait::Ipi];
        let wait = |(vcpu, begin, len, asleep, other, taken, kind): (_, u64, _, _, _, _, usize)| {
            let owner = Owner { tid: 7, vcpu: other, state: OwnerState::Running, delay_ns: 0 };
            Spin {
                asleep,
                owner: asleep.then_some(owner),
                before: (!asleep).then_some(Taken { vcpu: other, t_ns: taken * MS }),
                halted_ns: if asleep { 0 } else { taken * MS },
                ..spin(kinds[kind], vcpu, begin, begin + len)
            }
        };
        let spins: Vec<Spin> = waits.into_iter().map(wait).collect();
        let whole_ns: u64 = spins.iter().map(|spin| spin.end_ns - spin.begin_ns).sum();
        prop_assert!(burned_ns(&spins, &offs) <= whole_ns);
        for episode in explain(spins, &offs) {
            prop_assert!(episode.wasted_ns <= episode.spin.end_ns - episode.spin.begin_ns);
            prop_assert!(episode.blocked_ns <= episode.wasted_ns);
        }
    }
}
