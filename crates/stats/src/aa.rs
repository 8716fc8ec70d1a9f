//! The A/A check: does the method call a cell different from itself?
//!
//! The check splits all runs of one cell at random into two halves and compares them as the report
//! compares two cells. There is nothing to find, so each difference that the method calls is a
//! false positive. Each split is only one comparison, so no correction lowers the rate.
//!
//! The splits share their runs, so they are not independent. The interval of the rate shows how
//! well the splits measure it for these runs.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::{Interval, Rule, Run, Verdict, compare, rank_sum_p, wilson};

/// The result of an A/A check.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FalsePositives {
    /// Number of splits whose halves the method called different.
    pub different: u64,
    /// Number of splits.
    pub splits: u64,
    /// Number of runs in each half.
    pub per_side: usize,
    /// Share of splits called different, with its interval at 95 %.
    pub rate: Interval,
}

/// Splits the speeds of one cell's runs into halves `splits` times and compares the halves under
/// `rule`. Leaves an odd run out of each split. Returns `None` for fewer than 2 runs or no splits.
pub fn false_positives(
    speeds: &[f64],
    splits: u64,
    rule: &Rule,
    seed: u64,
) -> Option<FalsePositives> {
    let per_side = speeds.len() / 2;
    if per_side == 0 {
        return None;
    }
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut shuffled = speeds.to_vec();
    let mut different = 0;
    for _ in 0..splits {
        shuffled.shuffle(&mut rng);
        let (left, right) = (&shuffled[..per_side], &shuffled[per_side..2 * per_side]);
        different += u64::from(called_different(left, right, rule, rng.random()));
    }
    Some(FalsePositives { different, splits, per_side, rate: wilson(different, splits)? })
}

/// Compares as the report does, but pairs the halves at random. p alone rules most splits out; only
/// the others need the costly interval.
fn called_different(left: &[f64], right: &[f64], rule: &Rule, seed: u64) -> bool {
    rank_sum_p(left, right, seed) < rule.alpha
        && compare(&runs(left), &runs(right), seed)
            .is_some_and(|found| rule.verdict(&found, found.p) != Verdict::NoDifferenceShown)
}

fn runs(speeds: &[f64]) -> Vec<Run> {
    speeds.iter().zip(0..).map(|(&speed, block)| Run { block, speed }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_small_samples_have_none() {
        let speeds: Vec<f64> = (0..41).map(|i| 100.0 + f64::from(i * 7 % 41)).collect();
        let found = false_positives(&speeds, 50, &Rule::default(), 9).unwrap();
        assert_eq!((found.splits, found.per_side), (50, 20));
        assert_eq!(found.rate.value, found.different as f64 / 50.0);
        assert_eq!(false_positives(&speeds, 50, &Rule::default(), 9), Some(found));
        assert_eq!(false_positives(&[1.0], 50, &Rule::default(), 9), None);
        assert_eq!(false_positives(&speeds, 0, &Rule::default(), 9), None);
    }

    #[test]
    fn a_rule_without_demands_calls_about_its_level() {
        // alpha is 0.5 and any effect counts: the check must find false positives if the rule lets
        // them through.
        let speeds: Vec<f64> = (0..40).map(|i| 100.0 + f64::from(i * 17 % 40)).collect();
        let lax = Rule { alpha: 0.5, smallest_effect: 0.0 };
        let found = false_positives(&speeds, 200, &lax, 9).unwrap();
        assert!(found.different > 0, "{found:?}");
    }
}
