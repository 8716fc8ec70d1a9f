//! Tests of the decisions about lock holders, spinners, places and topology.

use std::time::Duration;

use proptest::prelude::*;
use unspin_policy::activity::State;
use unspin_policy::adaptive_spin::AdaptiveSpin;
use unspin_policy::capacity::Capacity;
use unspin_policy::handoff::{self, Contended};
use unspin_policy::place::{Place, Queue};
use unspin_policy::steal_governor::StealGovernor;
use unspin_policy::topology::{Relation, relation, together};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SLICE: u64 = 3 * MS;

#[test]
fn a_spinner_sleeps_while_its_owner_will_be_off_for_long() {
    let spin = AdaptiveSpin { off_since_ns: 10 * MS, off_mean_ns: 4 * MS, block_ns: 100 * US };
    assert_eq!(spin.left_ns(11 * MS), 3 * MS);
    assert!(spin.ends(10 * MS) && spin.ends(11 * MS));
    // The interval is already longer than usual, so it is expected to last as long again.
    assert_eq!(spin.left_ns(20 * MS), 10 * MS);
    let short = AdaptiveSpin { off_mean_ns: 50 * US, ..spin };
    assert!(!short.ends(10 * MS) && short.ends(11 * MS));
}

#[test]
fn a_holder_goes_on_within_its_budget() {
    assert!(handoff::goes_on(100 * MS, 100 * MS) && handoff::goes_on(100 * MS, 101 * MS));
    assert!(!handoff::goes_on(100 * MS, 102 * MS), "too long");
}

#[test]
fn the_lock_that_nobody_waits_for_any_more_is_forgotten_first() {
    let mut locks = [Contended::default(); handoff::LOCKS];
    for n in 1..=handoff::LOCKS as u64 {
        let place = handoff::place(&locks, n * 64, 7);
        locks[place] = Contended { lock: n * 64, wanted_ns: n * MS, process: 7, kind: 3 };
    }
    assert_eq!(handoff::place(&locks, 3 * 64, 7), 2, "it has a place");
    assert_eq!(handoff::place(&locks, 3 * 64, 8), 0, "another process's address");
    locks[0].wanted_ns = 100 * MS;
    assert_eq!(handoff::place(&locks, 9 * 64, 7), 1);
    assert!(locks[0].is_contended(7, 120 * MS) && !locks[0].is_contended(8, 120 * MS));
    assert!(!locks[0].is_contended(7, 150 * MS), "nobody wants it any more");
    assert!(!Contended::default().is_contended(0, MS), "a free place");
}

#[test]
fn a_task_goes_where_it_waits_least() {
    let on =
        Place { state: State::On as u32, left_ns: 50 * MS, off_ns: 4 * MS, ..Place::default() };
    let off = Place { state: State::Off as u32, ..on };
    let idle = Place { state: State::Idle as u32, wake_ns: 100 * US, ..on };
    let slow = Place { wake_ns: 20 * MS, ..idle };
    assert!(idle.is_better_than(&on, SLICE) && on.is_better_than(&off, SLICE));
    assert!(on.is_better_than(&slow, SLICE) && !slow.is_better_than(&off, SLICE));
    let ending = Place { left_ns: MS, ..on };
    assert!(on.is_better_than(&ending, SLICE));
}

#[test]
fn a_queue_that_is_not_served_is_taken_from_at_once() {
    let served = Queue { first_vtime: 10 * MS, served_ns: 100 * MS, serves: 1 };
    assert!(!served.comes_before(12 * MS, 101 * MS, SLICE));
    assert!(served.comes_before(14 * MS, 101 * MS, SLICE));
    assert!(served.comes_before(12 * MS, 120 * MS, SLICE), "nobody has served it for long");
    let off = Queue { serves: 0, ..served };
    assert!(off.comes_before(12 * MS, 101 * MS, SLICE));
    assert!(!off.comes_before(9 * MS, 101 * MS, SLICE), "its tasks have had more");
}

#[test]
fn vcpus_that_deliver_more_come_first() {
    let mut capacities = [Capacity::default(); 3];
    let window = 25 * MS;
    for n in 1..=40_u64 {
        capacities[0].look(n * window / 2, 0, window);
        capacities[1].look(n * window / 50, n * window / 2, window);
        // This vCPU is almost always idle, so its share stays unknown.
        capacities[2].look(0, n * (window - US), window);
    }
    assert!((450..550).contains(&capacities[0].share_m), "{capacities:?}");
    assert!(capacities[1].share_m > 900 && capacities[2].share_m == 0, "{capacities:?}");
    let mut order = [0_u32, 1, 2];
    order.sort_by(|a, b| capacities[*a as usize].order(*a, &capacities[*b as usize], *b));
    assert_eq!(order, [1, 2, 0]);
    capacities[1].behind = 1;
    order.sort_by(|a, b| capacities[*a as usize].order(*a, &capacities[*b as usize], *b));
    assert_eq!(order, [2, 0, 1], "one that shares its pCPU with a used one comes last");
}

#[test]
fn only_a_line_that_hardly_ever_comes_back_tells_of_a_shared_pcpu() {
    let ms = Duration::from_millis;
    assert_eq!(relation(5_000, ms(6), 1), Relation::Apart);
    assert_eq!(relation(20, ms(2), 1), Relation::Unknown);
    // Each vCPU was on for half of the time, and never together with the other.
    let by_turns = together([ms(3), ms(3)]);
    assert_eq!(by_turns, Duration::from_micros(1_500));
    assert_eq!(relation(20, by_turns * 10, 10), Relation::Unknown);
    assert_eq!(relation(20, by_turns * 11, 11), Relation::Stacked);
    assert_eq!(relation(400, by_turns * 11, 11), Relation::Apart);
    // Beside neighbours, the vCPUs are on so rarely that this proves nothing.
    let rarely = together([ms(1), ms(1)]);
    assert_eq!(relation(20, rarely * 31, 31), Relation::Unknown);
    assert_eq!(relation(20, rarely * 32, 32), Relation::Apart);
}

#[test]
fn the_governor_steps_once_a_second() {
    let mut governor = StealGovernor::new(4);
    let mut used = Vec::new();
    for second in 0..8_u64 {
        for window in 0..40 {
            // For the first four seconds, a quarter of four vCPUs' time is off.
            let off_m = if second < 4 { 1_000 } else { 0 };
            let now = 1_000 * MS + (second * 40 + window) * 25 * MS;
            used.push(governor.step(off_m, now));
        }
    }
    let changes = used.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!((used[0], used[100], *used.last().unwrap(), changes), (4, 2, 4, 6), "{used:?}");
}

proptest! {
    #[test]
    fn any_figures_are_survived(a in any::<[u64; 4]>(), b in any::<[u64; 3]>(), n in any::<u32>()) {
        let spin = AdaptiveSpin { off_since_ns: a[0], off_mean_ns: a[1], block_ns: a[2] };
        let (left, age) = (spin.left_ns(a[3]), a[3].saturating_sub(a[0]));
        // At least as long again as until now, or the rest of a usual interval.
        prop_assert!((age..=age.max(a[1])).contains(&left), "{left} of {age}");
        let place = Place { state: n % 3, waiting: n, left_ns: b[0], off_ns: b[1], wake_ns: b[2] };
        place.wait_ns(a[0]);
        let queue = Queue { first_vtime: b[0], served_ns: b[1], serves: n & 1 };
        // Of two queues, at most one comes before the other.
        let other = Queue { first_vtime: a[0], ..queue };
        let before = queue.comes_before(a[0], a[1], SLICE);
        prop_assert!(!(before && other.comes_before(b[0], a[1], SLICE)));
    }

    #[test]
    fn the_governor_keeps_within_its_vcpus(
        vcpus in 1..64_u32,
        steps in prop::collection::vec((any::<u32>(), 0..2_000_000_000_u64), 0..100),
    ) {
        let (mut governor, mut now) = (StealGovernor::new(vcpus), 1);
        for (off_m, later) in steps {
            now += later;
            prop_assert!((1..=vcpus).contains(&governor.step(off_m, now)));
        }
    }
}
