//! Tests of how much CPU time a limit lets a group use.

use proptest::prelude::*;
use unspin_policy::bandwidth::Bandwidth;

const MS: u64 = 1_000_000;
/// The kernel's tick, at which run time is checked.
const TICK: u64 = 4 * MS;

fn limited(quota_ns: u64, period_ns: u64, burst_ns: u64) -> Bandwidth {
    let mut bandwidth = Bandwidth::default();
    bandwidth.set(quota_ns, period_ns, burst_ns, 0);
    bandwidth
}

/// Runs a group that always has enough to do on `vcpus` vCPUs. Returns the time that the group
/// runs, and its longest wait.
fn run(bandwidth: &mut Bandwidth, vcpus: u64, from_ns: u64, until_ns: u64) -> (u64, u64) {
    let (mut ran, mut waits, mut longest) = (0, 0, 0);
    for now_ns in (from_ns..until_ns).step_by(TICK as usize) {
        bandwidth.refill(now_ns);
        if !bandwidth.has(0) {
            waits += TICK;
        } else {
            bandwidth.charge(vcpus * TICK);
            ran += vcpus * TICK;
            waits = 0;
        }
        longest = longest.max(waits);
    }
    (ran, longest)
}

#[test]
fn nobody_waits_without_a_limit() {
    let mut bandwidth = Bandwidth::default();
    bandwidth.charge(1_000_000 * MS);
    bandwidth.refill(1);
    assert!(bandwidth.has(0));
    // The kernel's form of "max", and a period that the kernel would refuse.
    bandwidth.set(u64::MAX, 100 * MS, 0, 5);
    assert!(bandwidth.has(0) && bandwidth.quota_ns == 0);
    bandwidth.set(MS, 0, 0, 6);
    assert!(bandwidth.has(0) && bandwidth.quota_ns == 0);
}

#[test]
fn a_changed_limit_counts_at_once() {
    let mut bandwidth = limited(10 * MS, 100 * MS, 0);
    bandwidth.charge(500 * MS);
    assert!(!bandwidth.has(0));
    bandwidth.set(10 * MS, 100 * MS, 0, 50 * MS);
    assert!(!bandwidth.has(0), "it has not changed");
    bandwidth.set(20 * MS, 100 * MS, 0, 50 * MS);
    assert!(bandwidth.has(0));
    bandwidth.charge(20 * MS);
    bandwidth.refill(149 * MS);
    assert!(!bandwidth.has(0));
    bandwidth.refill(150 * MS);
    assert!(bandwidth.has(0));
}

#[test]
fn unused_time_is_kept_up_to_the_burst() {
    let mut bandwidth = limited(10 * MS, 100 * MS, 5 * MS);
    bandwidth.refill(10_000 * MS);
    assert_eq!(bandwidth.left_ns, 15 * MS as i64);
    let mut bandwidth = limited(10 * MS, 100 * MS, 0);
    bandwidth.refill(10_000 * MS);
    assert_eq!(bandwidth.left_ns, 10 * MS as i64);
}

proptest! {
    /// On average, a group that always has enough to do gets its quota: it makes up for what ticks
    /// let it overrun, unless the wait would be too long.
    #[test]
    fn the_limit_holds_on_average(
        quota_ms in 4u64..400, period_ms in 10u64..1_000, vcpus in 1u64..16,
    ) {
        prop_assume!(vcpus * TICK / MS * period_ms < quota_ms * 4_000, "it can be made up for");
        let seconds = 120;
        let mut bandwidth = limited(quota_ms * MS, period_ms * MS, 0);
        let (ran, longest) = run(&mut bandwidth, vcpus, 0, seconds * 1_000 * MS);
        let share = quota_ms as f64 / period_ms as f64;
        let may = share.min(vcpus as f64) * seconds as f64 * 1e9;
        let once = (2 * quota_ms * MS + vcpus * TICK) as f64;
        prop_assert!((ran as f64 - may).abs() <= may * 0.05 + once, "{ran} of {may}");
        prop_assert!(longest <= 4_000 * MS + 2 * period_ms * MS, "{longest}");
    }

    /// No sequence of charges and clock jumps makes a group wait forever.
    #[test]
    fn whoever_waits_gets_time_again(
        quota in 1u64..=1 << 44, period in 1_000_000u64..=1 << 40, burst in any::<u64>(),
        steps in prop::collection::vec((0u64..1 << 42, 0u64..1 << 45), 1..40),
    ) {
        let mut bandwidth = limited(quota, period, burst);
        let mut now = 0;
        for (later, ran) in steps {
            now += later;
            bandwidth.refill(now);
            bandwidth.charge(ran);
        }
        // At most the largest overrun that a group makes up for, and the period that has begun.
        let mut wait = 0;
        while !bandwidth.has(0) {
            now += period;
            wait += period;
            bandwidth.refill(now);
            prop_assert!(wait <= 4_000 * MS + 2 * period, "{wait}: {bandwidth:?}");
        }
    }
}
