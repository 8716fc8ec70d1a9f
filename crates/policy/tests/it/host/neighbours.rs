//! Tests of the modelled neighbours.

use super::machine::MS;
use proptest::prelude::*;
use unspin_policy::neighbour::{Kind, Neighbour, Wish};

fn wish(runs: bool, if_on: Option<u64>, if_off: Option<u64>) -> Wish {
    Wish { runs, if_on, if_off }
}

#[test]
fn a_greedy_one_always_wants_to_run() {
    let mut greedy = Neighbour::new(Kind::Greedy, 0);
    assert_eq!(greedy.next(123 * MS, 0), wish(true, None, None));
}

#[test]
fn a_periodic_one_sleeps_after_its_cpu_time() {
    let mut periodic = Neighbour::new(Kind::Periodic(2 * MS, 5 * MS), MS);
    assert_eq!(periodic.next(0, 0), wish(false, Some(MS), Some(MS)));
    assert_eq!(periodic.next(MS, 0), wish(true, Some(3 * MS), None));
    // The neighbour has been off for 3 ms.
    assert_eq!(periodic.next(5 * MS, MS), wish(true, Some(6 * MS), None));
    assert_eq!(periodic.next(6 * MS, 2 * MS), wish(false, Some(11 * MS), Some(11 * MS)));
    assert_eq!(periodic.next(10 * MS, 2 * MS), wish(false, Some(11 * MS), Some(11 * MS)));
    assert_eq!(periodic.next(11 * MS, 2 * MS), wish(true, Some(13 * MS), None));
}

#[test]
fn a_burst_is_wall_time() {
    let mut burst = Neighbour::new(Kind::Burst(3 * MS, 7 * MS), MS);
    assert_eq!(burst.next(0, 0), wish(false, Some(MS), Some(MS)));
    assert_eq!(burst.next(MS, 0), wish(true, Some(4 * MS), Some(4 * MS)));
    assert_eq!(burst.next(4 * MS, 0), wish(false, Some(11 * MS), Some(11 * MS)));
    assert_eq!(burst.next(11 * MS, 0), wish(true, Some(14 * MS), Some(14 * MS)));
}

#[test]
fn given_times_are_kept() {
    let mut at = Neighbour::new(Kind::At(vec![(MS, 2 * MS), (5 * MS, 9 * MS)]), 0);
    assert_eq!(at.next(0, 0), wish(false, Some(MS), Some(MS)));
    assert_eq!(at.next(MS, 0), wish(true, Some(2 * MS), Some(2 * MS)));
    assert_eq!(at.next(2 * MS, 0), wish(false, Some(5 * MS), Some(5 * MS)));
    assert_eq!(at.next(8 * MS, 0), wish(true, Some(9 * MS), Some(9 * MS)));
    assert_eq!(at.next(9 * MS, 0), wish(false, None, None));
}

proptest! {
    /// A neighbour changes its mind at the time that it names, and not before.
    #[test]
    fn it_changes_its_mind_when_it_says(
        burst in any::<bool>(), on in 1u64..10 * MS, off in 1u64..10 * MS, start in 0..MS,
    ) {
        let kind = if burst { Kind::Burst(on, off) } else { Kind::Periodic(on, off) };
        let mut neighbour = Neighbour::new(kind, start);
        let (mut now, mut ran) = (0, 0);
        let mut last = neighbour.next(now, ran);
        for _ in 0..20 {
            let next = last.if_on.unwrap();
            let almost = ran + (next - 1 - now) * u64::from(last.runs);
            let before = neighbour.clone().next(next - 1, almost);
            prop_assert_eq!(before.runs, last.runs);
            ran += (next - now) * u64::from(last.runs);
            now = next;
            let wish = neighbour.next(now, ran);
            prop_assert_ne!(wish.runs, last.runs);
            last = wish;
        }
    }
}
