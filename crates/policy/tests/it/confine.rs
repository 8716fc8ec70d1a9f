//! Tests of the limit on vCPUs with a model of a guest and its host whose best number is known.

use proptest::prelude::*;
use unspin_policy::confine::{Confine, Facts, WINDOW_NS};

/// A host that gives a guest a fixed amount of time, and work that spins if vCPUs are off.
#[derive(Debug, Clone, Copy)]
struct World {
    vcpus: u32,
    /// The pCPUs that the guest gets.
    supply: u32,
    /// The share of the wanted time that the guest spins if half of its vCPUs are off, in percent.
    waste: u32,
    /// The share that it spins if no vCPU is off, in percent.
    contention: u32,
    tasks: u32,
}

impl World {
    /// Returns what the controller sees with `used` vCPUs in use.
    fn facts(&self, used: u32) -> Facts {
        let wanted = used.min(self.tasks);
        let on_m = 1_000 * wanted.min(self.supply);
        let off_m = 1_000 * wanted - on_m;
        let off_percent = off_m / 10 / wanted.max(1);
        let percent = (self.contention + self.waste * 2 * off_percent / 100).min(95);
        let paths = if self.contention + self.waste == 0 { 1 } else { 60 };
        let spin_m = wanted * 10 * percent;
        let spin_off_m = spin_m * off_m / (1_000 * wanted).max(1);
        Facts { on_m, off_m, spin_m, spin_off_m, paths, ..Facts::default() }
    }

    fn useful(&self, used: u32) -> f64 {
        let facts = self.facts(used);
        let wanted = f64::from((facts.on_m + facts.off_m).max(1));
        f64::from(facts.on_m) * (1.0 - f64::from(facts.spin_m) / wanted)
    }
}

const COLLAPSE: World = World { vcpus: 4, supply: 2, waste: 70, contention: 3, tasks: 8 };

/// Runs `windows` windows and returns the mean of the useful time.
fn run(confine: &mut Confine, world: &World, now_ns: &mut u64, windows: u32) -> f64 {
    let mut useful = 0.0;
    for _ in 0..windows {
        *now_ns += WINDOW_NS;
        useful += world.useful(confine.in_use()) / f64::from(windows);
        let next = confine.step(&world.facts(confine.in_use()), *now_ns);
        assert!((1..=world.vcpus).contains(&next));
    }
    useful
}

fn settled(world: &World, windows: u32) -> (Confine, u64) {
    let (mut confine, mut now_ns) = (Confine::new(world.vcpus), 0);
    run(&mut confine, world, &mut now_ns, windows);
    (confine, now_ns)
}

#[test]
fn a_collapse_ends_within_100_ms() {
    let (confine, _) = settled(&COLLAPSE, 10);
    assert_eq!((confine.in_use(), confine.on_trial()), (2, false));
    assert_eq!(confine.trials_fewer, [1, 1]);
}

/// In a burst, the host puts both vCPUs on one pCPU for some slices.
#[test]
fn a_burst_with_fewer_in_use_starts_no_trial() {
    let (mut confine, mut now_ns) = settled(&COLLAPSE, 20);
    let burst = Facts { on_m: 1_000, off_m: 1_900, spin_m: 1_500, paths: 90, ..Facts::default() };
    for window in 0..400 {
        now_ns += WINDOW_NS;
        let is_burst = window % 10 >= 8;
        let facts = if is_burst { burst } else { COLLAPSE.facts(confine.in_use()) };
        confine.step(&facts, now_ns);
        assert!(confine.in_use() >= 2, "window {window}: {confine:?}");
    }
}

#[test]
fn overcommit_that_does_not_spin_is_left_alone() {
    let (confine, _) = settled(&World { waste: 10, ..COLLAPSE }, 10_000);
    assert_eq!((confine.in_use(), confine.trials_fewer), (4, [0, 0]));
}

#[test]
fn locks_that_are_contended_with_every_vcpu_on_are_hardly_tried() {
    let world = World { supply: 4, contention: 45, ..COLLAPSE };
    let (mut confine, mut now_ns) = (Confine::new(4), 0);
    let useful = run(&mut confine, &world, &mut now_ns, 6_000);
    assert_eq!((confine.in_use(), confine.trials_fewer[1]), (4, 0));
    assert!(confine.trials_fewer[0] <= 8, "in a minute: {confine:?}");
    assert!(useful > 0.995 * world.useful(4), "{useful}");
}

#[test]
fn more_vcpus_are_tried_rarely_and_cost_little() {
    let (mut confine, mut now_ns) = settled(&COLLAPSE, 100);
    let useful = run(&mut confine, &COLLAPSE, &mut now_ns, 6_000);
    assert!(confine.trials_more[0] <= 12 && confine.trials_more[1] == 0, "{confine:?}");
    assert!(useful > 0.995 * COLLAPSE.useful(2), "{useful}");
}

#[test]
fn more_time_of_the_host_s_is_used_within_seconds() {
    let (mut confine, mut now_ns) = settled(&COLLAPSE, 50);
    let world = World { supply: 4, ..COLLAPSE };
    run(&mut confine, &world, &mut now_ns, 250);
    assert_eq!((confine.in_use(), confine.trials_more), (4, [1, 1]));
}

/// Restoring the limit takes long if many tasks spin.
#[test]
fn a_trial_that_took_long_is_long_not_repeated() {
    let (mut confine, mut now_ns) = settled(&COLLAPSE, 50);
    while confine.trials_more[0] == 0 {
        run(&mut confine, &COLLAPSE, &mut now_ns, 1);
    }
    while confine.in_use() == 4 {
        run(&mut confine, &COLLAPSE, &mut now_ns, 1);
    }
    now_ns += 300_000_000;
    run(&mut confine, &COLLAPSE, &mut now_ns, 1_500);
    assert_eq!((confine.in_use(), confine.trials_more), (2, [1, 0]));
    run(&mut confine, &COLLAPSE, &mut now_ns, 200);
    assert_eq!(confine.trials_more[0], 2);
}

#[test]
fn a_pause_after_a_failed_trial_is_no_part_of_it() {
    let (mut confine, mut now_ns) = settled(&COLLAPSE, 50);
    while confine.trials_more[0] == 0 || confine.in_use() == 4 {
        run(&mut confine, &COLLAPSE, &mut now_ns, 1);
    }
    run(&mut confine, &World { tasks: 0, ..COLLAPSE }, &mut now_ns, 90);
    assert_eq!(confine.in_use(), 2, "short quiet");
    run(&mut confine, &COLLAPSE, &mut now_ns, 250);
    assert_eq!(confine.trials_more[0], 2, "{confine:?}");
}

/// Work that contends for nothing.
const COMPUTES: World = World { waste: 0, contention: 0, ..COLLAPSE };

#[test]
fn work_that_contends_for_nothing_soon_has_all_vcpus() {
    let (mut confine, mut now_ns) = settled(&COLLAPSE, 50);
    run(&mut confine, &COMPUTES, &mut now_ns, 21);
    assert_eq!((confine.in_use(), confine.trials_more), (4, [1, 0]));
    run(&mut confine, &COMPUTES, &mut now_ns, 1_000);
    assert_eq!((confine.in_use(), confine.trials_more), (4, [1, 1]));
    run(&mut confine, &COLLAPSE, &mut now_ns, 5);
    assert_eq!(confine.in_use(), 2, "the number of before comes first: {confine:?}");
}

/// The work collapses on all vCPUs, and contends for nothing on fewer.
#[test]
fn calm_work_finds_the_number_between_one_and_all() {
    let facts = |used| match used {
        4 => Facts { on_m: 2_700, off_m: 1_300, spin_m: 3_840, paths: 9, ..Facts::default() },
        3 => Facts { on_m: 2_500, off_m: 500, spin_m: 2_700, paths: 9, ..Facts::default() },
        _ => COMPUTES.facts(used),
    };
    let (one, mut now_ns) = settled(&World { supply: 1, ..COLLAPSE }, 40);
    for mut confine in [Confine::new(4), one] {
        let mut windows = [0; 5];
        for _ in 0..600 {
            now_ns += WINDOW_NS;
            let used = confine.in_use();
            windows[used as usize] += 1;
            assert_ne!(confine.step(&facts(used), now_ns), 3, "{confine:?}");
        }
        assert!(windows[2] > 400, "{windows:?}: {confine:?}");
    }
    assert_eq!(one.in_use(), 1);
}

/// Each pause of the work brings all vCPUs back, and each end of a pause brings a collapse.
#[test]
fn calm_that_comes_and_goes_is_soon_waited_for() {
    let (mut confine, mut now_ns) = settled(&COLLAPSE, 50);
    let mut at_once = 0;
    for _ in 0..100 {
        run(&mut confine, &COMPUTES, &mut now_ns, 24);
        run(&mut confine, &COLLAPSE, &mut now_ns, 3);
        at_once += u32::from(confine.in_use() == 2 && !confine.on_trial());
        run(&mut confine, &COLLAPSE, &mut now_ns, 30);
    }
    assert!(at_once >= 98, "back at once {at_once} times: {confine:?}");
    assert!(confine.trials_more[0] <= 14, "in 57 s: {confine:?}");
}

#[test]
fn a_quiet_time_lifts_the_limit_and_its_number_is_kept() {
    let (mut confine, mut now_ns) = settled(&World { supply: 1, ..COLLAPSE }, 40);
    assert_eq!(confine.in_use(), 1);
    run(&mut confine, &World { tasks: 0, ..COLLAPSE }, &mut now_ns, 90);
    assert_eq!(confine.in_use(), 1, "short quiet");
    run(&mut confine, &World { tasks: 0, ..COLLAPSE }, &mut now_ns, 20);
    assert_eq!(confine.in_use(), 4);
    run(&mut confine, &COLLAPSE, &mut now_ns, 3);
    assert_eq!(confine.in_use(), 1, "the number of before comes first: {confine:?}");
}

/// Each burst is too short to show whether the limit pays.
#[test]
fn short_bursts_do_not_keep_a_limit_for_ever() {
    let (mut confine, mut now_ns) = settled(&COLLAPSE, 20);
    assert_eq!(confine.in_use(), 2);
    let burst = |confine: &mut Confine, now_ns: &mut u64, windows| {
        run(confine, &World { contention: 5, ..COMPUTES }, now_ns, windows);
        run(confine, &World { tasks: 0, ..COLLAPSE }, now_ns, 10 - windows);
    };
    for _ in 0..11 {
        burst(&mut confine, &mut now_ns, 2);
    }
    assert_eq!(confine.in_use(), 4, "{confine:?}");

    let (mut confine, mut now_ns) = settled(&COLLAPSE, 20);
    for _ in 0..11 {
        burst(&mut confine, &mut now_ns, 5);
        assert!(confine.in_use() < 4, "judged by its windows: {confine:?}");
    }
}

#[test]
fn another_load_does_not_wait_for_what_did_not_pay_for_the_last_one() {
    let mild = World { waste: 16, contention: 1, ..COLLAPSE };
    let unpaid = |used| Facts { spin_m: if used < 4 { 2_000 } else { 800 }, ..mild.facts(used) };
    let (mut confine, mut now_ns) = (Confine::new(4), 0);
    for _ in 0..1_000 {
        now_ns += WINDOW_NS;
        confine.step(&unpaid(confine.in_use()), now_ns);
    }
    assert_eq!(confine.trials_fewer[1], 0, "{confine:?}");
    run(&mut confine, &COLLAPSE, &mut now_ns, 20);
    assert_eq!(confine.in_use(), 2, "{confine:?}");
}

/// Tasks that want more than half of the time of the limited vCPUs, but less than half of that of
/// all vCPUs.
#[test]
fn tasks_that_need_little_more_than_half_are_not_tried_for_ever() {
    let (mut confine, mut now_ns) = settled(&COLLAPSE, 20);
    assert_eq!(confine.in_use(), 2);
    for _ in 0..1_000 {
        now_ns += WINDOW_NS;
        confine.step(
            &Facts { on_m: 1_300, off_m: 0, spin_m: 20, paths: 90, ..Facts::default() },
            now_ns,
        );
    }
    assert_eq!((confine.in_use(), confine.trials_more), (4, [1, 1]), "{confine:?}");
}

/// Tasks that want every vCPU only because they spin, and want little once they do not.
#[test]
fn fewer_that_leave_little_to_do_are_kept() {
    let spins = Facts { on_m: 4_000, off_m: 4_000, spin_m: 7_200, paths: 90, ..Facts::default() };
    let works = Facts { on_m: 1_500, off_m: 0, spin_m: 30, paths: 90, ..Facts::default() };
    let (mut confine, mut now_ns, mut packed) = (Confine::new(8), 0, 0);
    for _ in 0..1_000 {
        now_ns += WINDOW_NS;
        packed += u32::from(confine.in_use() <= 4);
        let facts = if confine.in_use() <= 4 { works } else { spins };
        confine.step(&facts, now_ns);
    }
    assert_eq!(confine.trials_fewer[0], confine.trials_fewer[1], "{confine:?}");
    assert!(confine.trials_fewer[0] <= 10 && packed >= 950, "{packed}: {confine:?}");
}

/// A little spinning may have been a burst, but then a limit that takes no time away does no harm.
#[test]
fn a_clear_gain_that_gives_nothing_away_is_not_compared_again() {
    let phases = |fewer_on_m| {
        let before = Facts { on_m: 2_000, off_m: 2_000, spin_m: 1_200, ..Facts::default() };
        let (mut confine, mut now_ns, mut was, mut changes) = (Confine::new(4), 0, 4, 0);
        while changes == 0 || confine.on_trial() {
            now_ns += WINDOW_NS;
            let fewer = Facts { on_m: fewer_on_m, paths: 60, ..Facts::default() };
            confine.step(if confine.in_use() == 4 { &before } else { &fewer }, now_ns);
            changes += u32::from(was != confine.in_use());
            was = confine.in_use();
        }
        assert_eq!(was, 2);
        changes
    };
    assert_eq!([2_000, 1_600, 1_500].map(phases), [1, 1, 3]);
}

/// A window that ended late weighs more in a mean, but its spins may be a single burst.
#[test]
fn a_long_window_weighs_more_but_is_one() {
    let steps = |windows| {
        let mut confine = Confine::new(8);
        // The first two windows are not counted.
        [(0, 1), (0, 1), (2_400, windows), (0, 1)].map(|(on_m, windows)| {
            let (off_m, spin_m) = (8_000 - on_m, 5_000);
            let facts = Facts { on_m, off_m, spin_m, paths: 60, windows, ..Facts::default() };
            confine.step(&facts, 10_000_000)
        })
    };
    assert_eq!(steps(1), [8, 8, 8, 2], "1.2 vCPUs on");
    assert_eq!(steps(5), [8, 8, 8, 3], "2.0 vCPUs on");
}

/// If the second comparison does not confirm the gain of the first, all windows of both decide.
#[test]
fn both_comparisons_decide_together() {
    let decide = |first_m, second_m| {
        let spun = Facts { spin_m: 1_200, spin_off_m: 600, paths: 60, ..Facts::default() };
        let before = Facts { on_m: 2_000, off_m: 2_000, ..spun };
        let (mut confine, mut now_ns, mut parts) = (Confine::new(4), 0, 0);
        let mut was = 4;
        while parts == 0 || confine.on_trial() {
            now_ns += WINDOW_NS;
            let fewer = |on_m| Facts { on_m, off_m: 0, spin_m: 0, paths: 60, ..Facts::default() };
            let facts = match confine.in_use() {
                4 => before,
                _ => fewer(if parts == 1 { first_m } else { second_m }),
            };
            confine.step(&facts, now_ns);
            parts += u32::from(was == 4 && confine.in_use() == 2);
            was = confine.in_use();
        }
        (parts, was)
    };
    // Four vCPUs bring 1,400 useful thousandths.
    assert_eq!(decide(2_000, 1_500), (1, 2), "43 %, with all of the time on left");
    assert_eq!(decide(1_580, 1_560), (2, 2), "13 %, then 11 %");
    assert_eq!(decide(1_580, 1_300), (2, 4), "13 %, then less");
}

/// A load that spins however few vCPUs it has, and does more on more of them.
#[test]
fn work_that_always_spins_gets_its_vcpus_back() {
    let (mut confine, mut now_ns) = settled(&COLLAPSE, 50);
    assert_eq!(confine.in_use(), 2);
    let world = World { supply: 4, contention: 50, ..COLLAPSE };
    let useful = run(&mut confine, &world, &mut now_ns, 3_000);
    assert!(useful > 0.9 * world.useful(4), "{useful}: {confine:?}");
}

/// A trial that failed long ago says nothing about the present.
#[test]
fn a_failed_trial_after_a_long_peace_waits_shortly() {
    let unpaid = |used: u32| match used {
        4 => Facts { on_m: 3_000, off_m: 1_000, spin_m: 1_200, paths: 90, ..Facts::default() },
        _ => Facts { on_m: 1_000, off_m: 1_000, spin_m: 1_800, paths: 90, ..Facts::default() },
    };
    let (mut confine, mut now_ns) = (Confine::new(4), 0);
    let mut spin = |confine: &mut Confine, windows| {
        for _ in 0..windows {
            now_ns += WINDOW_NS;
            confine.step(&unpaid(confine.in_use()), now_ns);
        }
        now_ns += 600 * 1_000_000_000;
    };
    spin(&mut confine, 6_000);
    let before = confine.trials_fewer[0];
    spin(&mut confine, 200);
    assert!(confine.trials_fewer[0] >= before + 3, "{before} before: {confine:?}");
}

proptest! {
    #[test]
    fn it_never_ends_below_what_all_vcpus_bring(
        vcpus in 1_u32..16, supply in 1_u32..16, waste in 0_u32..90,
        contention in 0_u32..60, tasks in 0_u32..32,
    ) {
        let world = World { vcpus, supply: supply.min(vcpus), waste, contention, tasks };
        let (mut confine, mut now_ns) = settled(&world, 200);
        let useful = run(&mut confine, &world, &mut now_ns, 1_000);
        prop_assert!(useful >= 0.97 * world.useful(vcpus), "{useful}: {confine:?}");
    }
}
