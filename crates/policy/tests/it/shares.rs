//! Tests of what the weights of groups make of their tasks' weights.

use proptest::prelude::*;
use unspin_policy::share::{self, ONE};

/// A group in the root group: its weight, and the weights of its tasks.
type Group = (u64, Vec<u64>);

/// Returns each group's factor if all tasks are ready; the root group's own comes first.
fn factors(own: &[u64], groups: &[Group]) -> Vec<u64> {
    let sum = |weights: &[u64]| weights.iter().sum::<u64>();
    let all = sum(own) + groups.iter().map(|(_, tasks)| sum(tasks)).sum::<u64>();
    let in_root = sum(own) + groups.iter().map(|(weight, _)| weight).sum::<u64>();
    let of_group =
        |(weight, tasks): &Group| share::factor(share::of(ONE, *weight, in_root), sum(tasks), all);
    std::iter::once(share::factor(ONE, in_root, all)).chain(groups.iter().map(of_group)).collect()
}

#[test]
fn weights_count_as_they_are_where_only_one_group_is_ready() {
    assert_eq!(factors(&[], &[(300, vec![100, 15, 88_761])])[1], ONE);
    assert_eq!(factors(&[100, 15], &[])[0], ONE);
    assert_eq!(share::charge_ns(3_000_000, 100, ONE), 3_000_000);
    assert_eq!(share::charge_ns(3_000_000, 300, ONE), 1_000_000);
}

#[test]
fn groups_get_time_by_weight_however_many_tasks_they_have() {
    let factors = factors(&[], &[(300, vec![100; 5]), (100, vec![100; 12])]);
    // A task that is charged less gets proportionally more time.
    let time = |tasks: u64, factor| tasks as f64 / share::charge_ns(1_000_000, 100, factor) as f64;
    let ratio = time(5, factors[1]) / time(12, factors[2]);
    assert!((2.97..3.03).contains(&ratio), "{ratio}");
}

#[test]
fn a_group_in_a_group_shares_what_that_one_gets() {
    let inner = share::of(share::of(ONE, 100, 400), 300, 400);
    assert_eq!(inner, ONE * 3 / 16);
    assert_eq!(share::of(inner, 100, 100), inner, "alone in its parent");
    assert_eq!(share::of(inner, 100, 0), inner, "the parent has not been seen yet");
}

proptest! {
    /// Groups change which tasks get the time, not how fast virtual time passes.
    #[test]
    fn all_weights_together_stay_what_they_are(
        own in prop::collection::vec(1u64..1_000, 0..4),
        groups in prop::collection::vec(
            (1u64..1_000, prop::collection::vec(1u64..1_000, 1..9)), 1..6,
        ),
    ) {
        let factors = factors(&own, &groups);
        let weigh = |tasks: &[u64], factor: u64| {
            tasks.iter().map(|weight| *weight as f64).sum::<f64>() * factor as f64 / ONE as f64
        };
        let counted: f64 = weigh(&own, factors[0])
            + groups.iter().zip(&factors[1..]).map(|((_, tasks), f)| weigh(tasks, *f)).sum::<f64>();
        let all: u64 = own.iter().sum::<u64>() + groups.iter().flat_map(|(_, t)| t).sum::<u64>();
        prop_assert!((counted / all as f64 - 1.0).abs() < 0.01, "{counted} of {all}");
    }

    /// Whatever the weights, a charge is at most a hundred times the run time, even a weight of 0
    /// is charged, and nothing overflows.
    #[test]
    fn charges_are_bounded(
        weight in 0u64..100_000, group in 1u64..640_000, beside in 1u64..1 << 40,
        ready in 0u64..1 << 30, all in 0u64..1 << 36,
    ) {
        let factor = share::factor(share::of(ONE, group, beside), ready, all);
        prop_assert!((ONE / 10_000..=ONE * 10_000).contains(&factor));
        let charged = share::charge_ns(100_000_000, weight, factor);
        prop_assert!(charged <= 100 * 100_000_000, "{charged}");
        prop_assert!(weight > 0 || charged > 0);
    }
}
