//! The OpenMetrics text of known sums.

use unspin_model::episode::{Cause, Wait};
use unspin_model::scheduler::{Actuator, Limits, Stats};
use unspin_report::openmetrics::{scheduler, text};
use unspin_trace::totals::{Causes, Sum, Totals};

#[test]
fn every_sum_is_a_counter_with_its_unit() {
    let totals = Totals {
        seconds: 2.5,
        offline: Vec::new(),
        off: vec![Sum { count: 3, ns: 4_500_000 }, Sum::default()],
        steal_ns: vec![10_000_000, 0],
        idle_ns: vec![1_500_000_000, 20_000_000],
        looks: vec![Sum { count: 250, ns: 0 }, Sum { count: 620, ns: 48_000_000 }],
        user_spin_ns: vec![12_000_000, 0],
        causes: Some(Causes {
            spins: [((Wait::Spinlock, Cause::HolderOff), Sum { count: 7, ns: 1_000_000_000 })]
                .into(),
            waits: [((Wait::Futex, Cause::HolderPreempted), Sum { count: 2, ns: 6_000_000 })]
                .into(),
            lost: 1,
        }),
    };
    insta::assert_snapshot!(text(&totals));
}

#[test]
fn the_scheduler_has_counters_and_gauges() {
    let stats = Stats {
        actuator: Actuator::SchedExt,
        resting: None,
        limits: Some(Limits { spins: 1_200, spins_lost: 2, failures: 4, ..Limits::default() }),
        seconds: 10.5,
        late_us: 400,
        vcpus: 3,
        used: 2,
        used_vcpus: vec![0, 3],
        stacks: vec![vec![0, 1]],
        trial: true,
        on: 1.75,
        off: 0.25,
        spinning: 0.5,
        waiting: 3.0,
        used_mean: 2.5,
        off_s: 4.5,
        spin_s: 2.25,
        trials_fewer: [3, 1],
        trials_more: [2, 0],
        placed: 100,
        queued: 1_000,
        pulled: 50,
        extended: 6,
        handed: 5,
        slept: 4,
        asked: 20,
        throttled: 7,
        reenqueued: 3,
        preempted: 10,
        cleared: 1,
    };
    insta::assert_snapshot!(scheduler(&stats));
}

#[test]
fn limits_have_no_figures_of_a_scheduler() {
    let limits = Limits { cgroups: 3, spins: 12, spins_lost: 1, ..Limits::default() };
    let actuator = Actuator::Cpuset;
    let text = scheduler(&Stats { actuator, vcpus: 2, limits: Some(limits), ..Stats::default() });
    for line in ["unspin_run_cgroups_limited 3", "unspin_run_spins_total 12", "# EOF"] {
        assert!(text.lines().any(|is| is == line), "{line}: {text}");
    }
    assert!(!text.contains("placed") && !text.contains("waiting"), "{text}");
}

#[test]
fn who_rests_has_no_figures_that_look_measured() {
    let resting = Some("the host helps".to_owned());
    let text = scheduler(&Stats { vcpus: 2, used: 2, resting, ..Stats::default() });
    for line in ["unspin_run_resting 1", "unspin_run_vcpus_in_use 2", "# EOF"] {
        assert!(text.lines().any(|is| is == line), "{line}: {text}");
    }
    for name in ["off", "spin_seconds", "trial", "vcpus_on"] {
        assert!(!text.contains(name), "{name}: {text}");
    }
}

#[test]
fn what_is_not_known_is_not_told() {
    let totals = Totals { seconds: 1.0, off: vec![Sum::default()], ..Totals::default() };
    let text = text(&totals);
    for name in ["idle", "steal", "_spin", "_wait_", "lost", "ticks"] {
        assert!(!text.contains(name), "{name}: {text}");
    }
}

#[test]
fn a_vcpu_that_is_offline_has_no_series() {
    let off = vec![Sum { count: 3, ns: 4_000_000 }, Sum::default(), Sum { count: 1, ns: 1 }];
    let text = text(&Totals { offline: vec![1], off, ..Totals::default() });
    let series = |vcpu: u16| text.contains(&format!("off_intervals_total{{vcpu=\"{vcpu}\"}}"));
    assert_eq!([0, 1, 2].map(series), [true, false, true], "{text}");
}
