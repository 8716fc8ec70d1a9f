//! Tests of the limit on vCPUs beside other VMs that want the same pCPUs.

use unspin_policy::confine::{Confine, Facts, WINDOW_NS};

/// Runs `windows` windows; `facts` returns the facts for the number of vCPUs in use.
fn run(confine: &mut Confine, now_ns: &mut u64, windows: u32, facts: impl Fn(u32) -> Facts) {
    for _ in 0..windows {
        *now_ns += WINDOW_NS;
        confine.step(&facts(confine.in_use()), *now_ns);
    }
}

/// Facts of four vCPUs beside four rivals on two pCPUs. The rivals get what a limit gives away.
fn beside_rivals(used: u32, spin_percent: u32) -> Facts {
    let on_m = 2_000 * used / (used + 4);
    let (off_m, spin_m) = (1_000 * used - on_m, used * 10 * spin_percent);
    let spin_off_m = spin_m * off_m / (1_000 * used);
    Facts { on_m, off_m, spin_m, spin_off_m, paths: 60, ..Facts::default() }
}

/// Resembles pbzip2 in virtual time: each second, a burst ends the controller's rest and delays
/// ticks.
#[test]
fn a_burst_gives_little_to_rivals() {
    let burst = Facts { on_m: 400, off_m: 3_600, spin_m: 1_400, paths: 60, ..Facts::default() };
    let (mut confine, mut now_ns, mut on_m) = (Confine::new(4), 0, 0);
    for window in 0..6_000 {
        now_ns += WINDOW_NS;
        let calm = beside_rivals(confine.in_use(), 3);
        on_m += calm.on_m;
        if window % 100 == 0 {
            confine.wake();
        }
        let spins = window % 100 < 4 && confine.in_use() == 4;
        confine.step(if spins { &burst } else { &calm }, now_ns);
    }
    let kept = f64::from(on_m) / f64::from(6_000 * beside_rivals(4, 0).on_m);
    assert!(kept > 0.97, "{kept}: {confine:?}");
}

/// Rivals come while vCPUs are limited, and fewer of them do not help.
#[test]
fn more_are_tried_where_rivals_come_and_fewer_do_not_pay() {
    let alone = |used| match used {
        6 => Facts { on_m: 3_000, off_m: 3_000, spin_m: 4_200, paths: 60, ..Facts::default() },
        _ => Facts { on_m: 3_000, off_m: 0, spin_m: 90, paths: 60, ..Facts::default() },
    };
    let (mut confine, mut now_ns) = (Confine::new(6), 0);
    run(&mut confine, &mut now_ns, 40, alone);
    assert_eq!(confine.in_use(), 3);
    let spun = |spin_m, spin_off_m| Facts { spin_m, spin_off_m, paths: 60, ..Facts::default() };
    let facts = |used| match used {
        6 => Facts { on_m: 1_500, off_m: 4_500, ..spun(3_600, 2_700) },
        3 => Facts { on_m: 1_000, off_m: 2_000, ..spun(2_100, 1_400) },
        _ => Facts { on_m: 300, off_m: 700, ..spun(0, 0) },
    };
    run(&mut confine, &mut now_ns, 60, facts);
    assert_eq!(confine.in_use(), 6, "{confine:?}");
}

/// Two loads, each for so many windows, for a minute. A limit helps neither.
fn alternate(confine: &mut Confine, spin_percents: [u32; 2], windows: u32) -> u64 {
    let mut now_ns = 0;
    for _ in 0..3_000 / windows {
        for percent in spin_percents {
            run(confine, &mut now_ns, windows, |used| beside_rivals(used, percent));
        }
    }
    now_ns
}

/// A steady load meets eight trials in a minute. A change of load in the middle of a trial can pass
/// for a gain, and then the waits begin again.
#[test]
fn loads_that_alternate_are_not_tried_at_each_change() {
    for spin_percents in [[50, 92], [92, 30], [92, 3]] {
        // Half a second is a multiple of the waits, so more trials than usual meet a change.
        for (windows, most) in [(37, 20), (50, 60), (70, 20), (100, 20), (200, 20)] {
            let mut confine = Confine::new(4);
            alternate(&mut confine, spin_percents, windows);
            let trials = confine.trials_fewer[0];
            assert!(trials <= most, "{spin_percents:?}, {windows} windows: {confine:?}");
        }
    }
}

#[test]
fn a_load_that_spins_more_than_those_that_alternate_is_tried_at_once() {
    let mut confine = Confine::new(4);
    let mut now_ns = alternate(&mut confine, [50, 30], 50);
    let collapse = |used| beside_rivals(used, if used == 4 { 85 } else { 3 });
    run(&mut confine, &mut now_ns, 20, collapse);
    assert_eq!((confine.in_use(), confine.trials_fewer[1]), (2, 1), "{confine:?}");
}

/// Four vCPUs without rivals on one pCPU: what a limit gives away stays theirs.
fn stacked(used: u32, spin_percent: u32) -> Facts {
    Facts {
        on_m: 1_000,
        off_m: 1_000 * (used - 1),
        spin_m: used * 10 * spin_percent,
        paths: 60,
        ..Facts::default()
    }
}

/// Resembles futex in virtual time, which spins less than a limit would give away.
#[test]
fn no_trial_where_rivals_would_get_more_than_is_spun() {
    let (mut confine, mut now_ns) = (Confine::new(4), 0);
    run(&mut confine, &mut now_ns, 400, |used| beside_rivals(used, 40));
    assert_eq!(confine.trials_fewer, [0, 0], "{confine:?}");
}

/// The vCPUs are off for most of the time, for one of two reasons; the first trial shows which.
#[test]
fn a_trial_shows_whether_there_are_rivals() {
    for (host, tried) in [(stacked as fn(u32, u32) -> Facts, true), (beside_rivals, false)] {
        let (mut confine, mut now_ns) = (Confine::new(4), 0);
        run(&mut confine, &mut now_ns, 20, |used| host(used, if used == 4 { 70 } else { 0 }));
        assert!(confine.in_use() < 4, "{confine:?}");
        run(&mut confine, &mut now_ns, 200, |used| Facts { paths: 0, ..host(used, 0) });
        assert_eq!(confine.in_use(), 4, "{confine:?}");
        let trials = confine.trials_fewer[0];
        run(&mut confine, &mut now_ns, 200, |used| host(used, if used == 4 { 35 } else { 0 }));
        assert_eq!(confine.trials_fewer[0] > trials, tried, "{confine:?}");
    }
}

/// If the vCPUs spin so much that off intervals pass for time on, a trial says nothing about
/// rivals.
#[test]
fn a_trial_without_known_time_on_shows_no_rivals() {
    let hidden = |used| match used {
        4 => Facts { on_m: 3_500, off_m: 500, spin_m: 3_200, paths: 60, ..Facts::default() },
        _ => stacked(used, 0),
    };
    let (mut confine, mut now_ns) = (Confine::new(4), 0);
    run(&mut confine, &mut now_ns, 40, hidden);
    assert_eq!((confine.in_use(), confine.trials_fewer), (2, [1, 1]), "{confine:?}");
    run(&mut confine, &mut now_ns, 200, |used| Facts { paths: 0, ..stacked(used, 0) });
    assert_eq!(confine.in_use(), 4, "{confine:?}");
    run(&mut confine, &mut now_ns, 200, |used| stacked(used, if used == 4 { 55 } else { 0 }));
    assert!(confine.trials_fewer[0] > 1, "{confine:?}");
}

/// The host gives four vCPUs beside many rivals less time than one of them wants.
#[test]
fn one_is_tried_where_the_host_gives_less_than_one() {
    for (on_m, tried) in [(700, 1), (890, 1), (1_000, 2), (1_600, 2)] {
        let (mut confine, mut now_ns) = (Confine::new(4), 0);
        let facts =
            Facts { on_m, off_m: 4_000 - on_m, spin_m: 2_600, paths: 60, ..Facts::default() };
        while confine.in_use() == 4 {
            run(&mut confine, &mut now_ns, 1, |_| facts);
        }
        assert_eq!(confine.in_use(), tried, "{on_m}");
    }
}

/// The spinning costs less than the share of the host that a limit gives away.
#[test]
fn some_spinning_is_worth_more_vcpus_beside_rivals() {
    let collapse = |used| beside_rivals(used, if used == 4 { 80 } else { 3 });
    let (mut confine, mut now_ns) = (Confine::new(4), 0);
    run(&mut confine, &mut now_ns, 20, collapse);
    assert_eq!(confine.in_use(), 2);
    run(&mut confine, &mut now_ns, 60, collapse);
    assert_eq!((confine.in_use(), confine.trials_more), (2, [1, 0]), "it is tried once");
    run(&mut confine, &mut now_ns, 400, |used| beside_rivals(used, if used == 4 { 25 } else { 3 }));
    assert_eq!(confine.in_use(), 4, "{confine:?}");
}

/// Resembles pbzip2 in virtual time: a burst begins a limit, and the first trial of more meets
/// another burst.
#[test]
fn a_limit_that_gives_much_away_is_soon_compared_again() {
    let burst = |used| beside_rivals(used, if used == 4 { 60 } else { 3 });
    let (mut confine, mut now_ns) = (Confine::new(4), 0);
    while confine.trials_more[0] == 0 || confine.on_trial() {
        run(&mut confine, &mut now_ns, 1, burst);
    }
    assert_eq!((confine.in_use(), confine.trials_more), (2, [1, 0]), "{confine:?}");
    let failed_ns = now_ns;
    while confine.trials_more[1] == 0 {
        run(&mut confine, &mut now_ns, 1, |used| beside_rivals(used, 3));
    }
    assert!(now_ns - failed_ns < 800_000_000, "{confine:?}");
}

/// Resembles hackbench in virtual time: two vCPUs spin as much as four, and changing the number
/// takes half a second.
#[test]
fn a_change_that_takes_long_is_not_soon_repeated() {
    let (mut confine, mut now_ns, mut was) = (Confine::new(4), 0, 4);
    while now_ns < 10_000_000_000 {
        run(&mut confine, &mut now_ns, 1, |used| beside_rivals(used, 70));
        if confine.in_use() != was {
            was = confine.in_use();
            now_ns += 500_000_000;
        }
    }
    assert!(confine.trials_fewer[0] <= 2, "{confine:?}");
}

/// If the time off may be longer than it seems, there may be rivals.
#[test]
fn spins_that_hide_time_off_must_be_many() {
    let tries = |held_m, spin_m| {
        let (mut confine, mut now_ns) = (Confine::new(4), 0);
        let facts =
            Facts { on_m: 2_000, off_m: 2_000, spin_m, held_m, paths: 60, ..Facts::default() };
        run(&mut confine, &mut now_ns, 10, |_| facts);
        confine.trials_fewer[0] > 0
    };
    assert_eq!(
        [(300, 1_000), (500, 1_000), (500, 1_900)].map(|(held_m, spin_m)| tries(held_m, spin_m)),
        [true, false, true]
    );
}

/// Returns after how many of 25 windows the vCPUs that are not in use are isolated.
fn isolated_after(facts: impl Fn(u32) -> Facts) -> Option<u32> {
    let (mut confine, mut now_ns) = (Confine::new(4), 0);
    let found = (0..25).find(|_| {
        run(&mut confine, &mut now_ns, 1, &facts);
        confine.isolates(now_ns)
    });
    assert!(confine.in_use() < 4, "{confine:?}");
    found
}

/// Beside rivals, a change takes long and more vCPUs are tried soon.
#[test]
fn only_beside_rivals_a_first_limit_isolates_no_vcpus() {
    let collapse =
        Facts { on_m: 2_000, off_m: 2_000, spin_m: 3_600, paths: 60, ..Facts::default() };
    let alone = |used| match used {
        4 => collapse,
        _ => Facts { on_m: 2_000, off_m: 0, spin_m: 50, paths: 60, ..Facts::default() },
    };
    let rivals = |used| match used {
        4 => Facts { on_m: 1_500, off_m: 2_500, ..collapse },
        _ => Facts { on_m: 1_000, off_m: 1_000, spin_m: 50, paths: 60, ..Facts::default() },
    };
    // The limit itself comes after three windows.
    assert_eq!(isolated_after(alone), Some(3));
    assert_eq!(isolated_after(rivals), None);
    // Spins hide time off, so a window with spins does not prove that rivals are absent.
    let hidden = |used| match used {
        4 => collapse,
        _ => Facts { on_m: 2_000, off_m: 0, spin_m: 1_000, paths: 60, ..Facts::default() },
    };
    assert!(isolated_after(hidden).is_none_or(|windows| windows > 10), "spins");
}
