//! Tests of the limit on vCPUs: what a trial sees, and what can mislead it.

use unspin_policy::confine::{Confine, Facts, WINDOW_NS};

/// Returns facts with that much spinning, of which the vCPUs were off for `spin_off_m`.
fn spun(spin_m: u32, spin_off_m: u32) -> Facts {
    Facts { spin_m, spin_off_m, paths: 60, ..Facts::default() }
}

/// Facts of four vCPUs on two pCPUs: all four spin for most of the time, two hardly spin.
fn collapse(used: u32) -> Facts {
    match used {
        2 => Facts { on_m: 2_000, ..spun(60, 0) },
        _ => Facts { on_m: 2_000, off_m: 2_000, ..spun(2_920, 1_460) },
    }
}

/// Returns the controller of a guest of four vCPUs after `windows` windows.
fn after(windows: u32, mut facts: impl FnMut(u32) -> Facts) -> Confine {
    let mut confine = Confine::new(4);
    for window in 1..=u64::from(windows) {
        confine.step(&facts(confine.in_use()), window * WINDOW_NS);
    }
    confine
}

/// Runs a trial whose first five windows have the facts `late`, because vCPUs that are on again
/// count earlier time off.
fn trial_with_late_windows(late: Facts) -> Confine {
    let collapse =
        Facts { on_m: 1_100, off_m: 2_900, spin_m: 2_100, paths: 300, ..Facts::default() };
    let packed = Facts { on_m: 2_000, off_m: 0, spin_m: 50, paths: 90, ..Facts::default() };
    let (mut confine, mut now_ns, mut fewer) = (Confine::new(4), 0, 0);
    for _ in 0..40 {
        now_ns += WINDOW_NS;
        let facts = match fewer {
            0 => collapse,
            1..=5 => late,
            _ => packed,
        };
        let used = confine.step(&facts, now_ns);
        assert!(fewer == 0 || used == 2, "back to {used} after {fewer} windows");
        fewer += u32::from(used == 2);
    }
    confine
}

/// Resembles two guests in virtual time.
#[test]
fn old_time_off_that_hides_a_gain_is_waited_for() {
    let unclear_gain =
        Facts { on_m: 1_200, off_m: 1_200, spin_m: 900, paths: 90, ..Facts::default() };
    let unclear_loss =
        Facts { on_m: 900, off_m: 1_700, spin_m: 1_400, paths: 90, ..Facts::default() };
    for late in [unclear_gain, unclear_loss] {
        let confine = trial_with_late_windows(late);
        assert_eq!((confine.on_trial(), confine.trials_fewer), (false, [1, 1]), "{late:?}");
    }
}

/// Resembles sysbench's threads, which yield until another thread releases a mutex: on two vCPUs,
/// each yield causes a switch.
#[test]
fn tasks_that_switch_more_often_on_fewer_vcpus_keep_all() {
    let facts = |used, switch_m| match used {
        4 => Facts { on_m: 2_000, off_m: 2_000, switch_m: 10, ..spun(1_000, 500) },
        _ => Facts { on_m: 2_000, switch_m, ..spun(60, 0) },
    };
    for (switch_m, kept) in [(600, 0), (10, 1)] {
        let confine = after(60, |used| facts(used, switch_m));
        assert_eq!(confine.trials_fewer[1], kept, "{confine:?}");
        assert!(confine.trials_fewer[0] >= 1, "{confine:?}");
    }
}

/// The same threads if a lock's owner is off: in bursts, four vCPUs spin for nearly all of the
/// time, so two seem to do far more although they mostly switch.
#[test]
fn tasks_that_mostly_switch_on_fewer_vcpus_keep_all() {
    let facts = |used| match used {
        4 => Facts { on_m: 1_700, off_m: 2_300, ..spun(3_900, 2_240) },
        _ => Facts { on_m: 2_000, switch_m: 1_200, ..spun(0, 0) },
    };
    let confine = after(100, facts);
    assert_eq!((confine.in_use(), confine.trials_fewer[1]), (4, 0), "{confine:?}");
    assert!(confine.trials_fewer[0] >= 1, "{confine:?}");
}

/// The same threads if the trial came while they had other work to do.
#[test]
fn a_limit_goes_under_which_tasks_begin_to_switch() {
    let mut windows = 0;
    let confine = after(60, |used| {
        windows += u32::from(used == 2);
        match used {
            4 => collapse(4),
            _ if windows < 8 => collapse(2),
            _ => Facts { on_m: 2_000, switch_m: 1_200, ..spun(0, 0) },
        }
    });
    assert_eq!((confine.in_use(), confine.trials_fewer), (4, [2, 1]), "{confine:?}");
}

/// Resembles tasks that change their affinity all the time: moving them is most of the work, and on
/// fewer vCPUs the other tasks, which decide among them, may wait for seconds.
#[test]
fn tasks_that_mostly_switch_meet_no_trial() {
    for (switch_m, tried) in [(400, 0), (390, 1)] {
        let confine = after(100, |used| Facts { switch_m, ..collapse(used) });
        assert_eq!(confine.trials_fewer[0].min(1), tried, "{confine:?}");
    }
}

/// Resembles hackbench, which switches for each message, equally often for equal work.
#[test]
fn switches_that_belong_to_the_work_hide_no_gain() {
    let world = |used| {
        let facts = collapse(used);
        let worked_m = facts.on_m * (1_000 - facts.spin_m / 4) / 1_000;
        Facts { switch_m: worked_m / 8, ..facts }
    };
    let confine = after(10, world);
    assert_eq!((confine.in_use(), confine.on_trial()), (2, false), "{confine:?}");
}

/// Resembles hackbench beside four busy rivals: waiters are off for most of the time that they
/// spin, and the vCPUs that are on work. A limit would give half of the host's time away.
#[test]
fn spinning_while_off_is_no_loss() {
    let facts = |spin_off_m| {
        move |used| match used {
            4 => Facts { on_m: 1_000, off_m: 3_000, ..spun(2_400, spin_off_m) },
            _ => Facts { on_m: 500, off_m: 1_500, ..spun(100, 50) },
        }
    };
    assert_eq!(after(60, facts(1_900)).trials_fewer[1], 0, "half of the time on is useful");
    assert_ne!(after(60, facts(1_500)).trials_fewer[1], 0, "a tenth is");
}

/// Spins that hold back ticks hide time off. On a host with two pCPUs, three vCPUs would go on
/// spinning.
#[test]
fn of_time_on_that_is_not_sure_the_least_counts() {
    let tried = |held_m| {
        let confine = after(4, |_| Facts { on_m: 2_720, off_m: 1_280, held_m, ..spun(2_100, 760) });
        confine.in_use()
    };
    assert_eq!((tried(0), tried(380)), (3, 2));
}

/// Resembles dbench, which contends for nothing on two vCPUs: all vCPUs get no more time from the
/// host, and collapse.
#[test]
fn calm_that_all_vcpus_ended_in_vain_is_trusted_later() {
    let in_vain = |used| match used {
        2 => Facts { on_m: 2_000, ..Facts::default() },
        _ => collapse(4),
    };
    let confine = after(1_000, in_vain);
    assert_eq!((confine.in_use(), confine.trials_more), (2, [3, 0]), "in ten seconds: {confine:?}");
}

/// Work in user mode hardly reaches the kernel's locks, so the controller trusts its calm sooner.
#[test]
fn calm_in_user_mode_is_trusted_soon() {
    let windows_until_all = |user_ticks| {
        let spins =
            |used| if used == 4 { collapse(4) } else { Facts { on_m: 2_000, ..spun(60, 0) } };
        let mut confine = after(10, spins);
        assert_eq!((confine.in_use(), confine.on_trial()), (2, false));
        let computes = Facts { on_m: 2_000, ticks: 5, user_ticks, ..Facts::default() };
        let windows = (1..40).find(|n| confine.step(&computes, (10 + n) * WINDOW_NS) == 4);
        windows.expect("all vCPUs are tried")
    };
    assert_eq!([5, 4].map(windows_until_all), [4, 20]);
}

/// Beside rivals, even two vCPUs can collapse.
#[test]
fn a_trial_that_spins_as_much_goes_on_with_half() {
    let several = |on_m| {
        move |used| {
            let off_m = (1_000 - on_m) * used;
            Facts { on_m: on_m * used, off_m, ..spun(960 * used, 960 * off_m / 1_000) }
        }
    };
    let one = Facts { on_m: 400, off_m: 600, ..Facts::default() };
    let or_one = |on_m| move |used| if used == 1 { one } else { several(on_m)(used) };
    let confine = after(40, or_one(300));
    assert_eq!((confine.in_use(), confine.trials_fewer), (1, [1, 1]), "{confine:?}");
    let confine = after(30, several(300));
    assert_eq!((confine.in_use(), confine.trials_fewer), (4, [1, 0]), "{confine:?}");
    // Two vCPUs that share a pCPU collapse, too. The next trial may use two others.
    let confine = after(400, or_one(500));
    assert_eq!((confine.in_use(), confine.trials_fewer[1]), (4, 0), "{confine:?}");
}

/// Limited to few vCPUs, work in the kernel is calm, too. That does not delay the trial once the
/// work computes.
#[test]
fn calm_in_the_kernel_before_does_not_count_against_computing() {
    let mut confine = after(10, collapse);
    assert_eq!((confine.in_use(), confine.on_trial()), (2, false));
    let calm = |user_ticks| Facts { on_m: 2_000, ticks: 5, user_ticks, ..Facts::default() };
    let mut now_ns = 10 * WINDOW_NS;
    let mut step = |user_ticks| {
        now_ns += WINDOW_NS;
        confine.step(&calm(user_ticks), now_ns)
    };
    assert!((0..15).all(|_| step(1) == 2));
    assert_eq!((1..5).find(|_| step(5) == 4), Some(4));
}

/// Beside rivals, the agent's vCPU is off at times, so windows end late.
#[test]
fn calm_windows_count_for_their_length() {
    let steps_until_kept = |windows| {
        let mut confine = after(10, collapse);
        let calm = |used| Facts { on_m: 1_000 * used, windows, ..Facts::default() };
        let mut now_ns = 10 * WINDOW_NS;
        let mut step = |confine: &mut Confine| {
            now_ns += WINDOW_NS * u64::from(windows);
            confine.step(&calm(confine.in_use()), now_ns)
        };
        let tried = (1..40).find(|_| step(&mut confine) == 4).expect("all vCPUs are tried");
        let kept = (1..200).find(|_| step(&mut confine) == 4 && !confine.on_trial());
        (tried, kept.expect("all are kept"))
    };
    assert_eq!([1, 2].map(steps_until_kept), [(20, 102), (10, 52)]);
}

/// A load that computes for 50 ms, then contends in the kernel, and so on.
#[test]
fn calm_in_user_mode_that_ends_in_a_collapse_is_trusted_later() {
    let mut confine = after(10, collapse);
    let mut now_ns = 10 * WINDOW_NS;
    for window in 0..1_000 {
        now_ns += WINDOW_NS;
        let computes = Facts { on_m: 2_000, ticks: 5, user_ticks: 5, ..Facts::default() };
        let calm = window % 30 < 6 && confine.in_use() == 2;
        confine.step(&if calm { computes } else { collapse(confine.in_use()) }, now_ns);
    }
    assert!(confine.trials_more[0] <= 4, "in ten seconds: {confine:?}");
}

/// The host keeps no vCPU off any more, and the work itself contends, more so on more vCPUs. The
/// trials of more that end because of this show in the end that more is done.
#[test]
fn a_limit_goes_where_more_vcpus_do_more_though_they_spin() {
    let free = |used, spins_percent| {
        let percent = if used == 4 { spins_percent } else { 5 };
        Facts { on_m: 1_000 * used, ..spun(10 * used * percent, 0) }
    };
    let after_collapse = |spins_percent| {
        let mut windows = 0;
        let confine = after(4_000, |used| {
            windows += 1;
            if windows <= 20 { collapse(used) } else { free(used, spins_percent) }
        });
        (confine.in_use(), confine.trials_more)
    };
    assert_eq!(after_collapse(15), (4, [4, 1]));
    assert_eq!(after_collapse(45).0, 2, "spins for which fewer are tried");
    // In every other trial, vCPUs are off.
    let (mut trials, mut was) = (0, 4);
    let confine = after(4_000, |used| {
        trials += u32::from(used > was);
        was = used;
        match used {
            2 => free(2, 5),
            _ if trials % 2 == 0 => collapse(used),
            _ => free(4, 15),
        }
    });
    assert_eq!((confine.in_use(), confine.trials_more[1]), (2, 0), "{confine:?}");
}

#[test]
fn one_window_of_nothing_but_spinning_is_enough() {
    let first_trial = |spin_m| {
        let mut confine = Confine::new(4);
        let spins = Facts { on_m: 2_000, off_m: 2_000, ..spun(spin_m, spin_m / 2) };
        confine.wake();
        (1..9).find(|n| confine.step(&spins, n * WINDOW_NS) < 4)
    };
    assert_eq!([3_000, 2_900].map(first_trial), [Some(1), Some(2)]);
}

#[test]
fn a_limit_that_gives_nothing_away_is_compared_with_more_vcpus_later() {
    let trials_after = |windows, left_m| {
        let facts = |used| match used {
            2 => Facts { on_m: left_m, off_m: 2_000 - left_m, ..spun(60, 0) },
            _ => collapse(4),
        };
        after(windows, facts).trials_more[0]
    };
    // Fewer vCPUs keep all of the time on, or three quarters.
    assert_eq!((trials_after(150, 2_000), trials_after(250, 2_000)), (0, 1));
    assert_eq!(trials_after(150, 1_550), 1);
}
