//! The comparison of two cells and its verdict.
//!
//! A small p alone does not make a difference worth reporting: with enough runs, the slightest one
//! has a small p. So the rule calls a difference only if three conditions hold: the corrected p is
//! below the level, the ratio is at least the smallest effect away from 1, and the ratio's interval
//! excludes 1. Everything else is "no difference shown", which does not mean that none exists.

use crate::{Bootstrap, Interval, Run, median_speed, rank_sum_p, speeds};

/// Difference between the runs of two cells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Ratio of median speeds, subject to baseline, with the interval of resampled blocks; `None`
    /// if the baseline's median is 0.
    pub ratio: Option<Interval>,
    /// Two-sided p of the rank-sum test with free exchange, not corrected.
    pub p: f64,
    /// Median speed of the subject.
    pub subject_median: f64,
}

/// Compares two cells; returns `None` if one has no runs.
pub fn compare(subject: &[Run], baseline: &[Run], seed: u64) -> Option<Difference> {
    let subject_median = median_speed(&speeds(subject))?;
    median_speed(&speeds(baseline))?;
    Some(Difference {
        ratio: Bootstrap::seeded(seed).blocked_ratio(subject, baseline),
        p: rank_sum_p(&speeds(subject), &speeds(baseline), seed),
        subject_median,
    })
}

/// Result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The subject is faster.
    Better,
    /// The subject is slower.
    Worse,
    /// The difference is too small, or not distinguishable from noise.
    NoDifferenceShown,
}

/// Conditions for calling two cells different.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// Level that the corrected p must be below.
    pub alpha: f64,
    /// Smallest distance of the ratio from 1.
    pub smallest_effect: f64,
}

impl Default for Rule {
    /// Returns the defaults: 5 %, and an effect of at least 3 %.
    fn default() -> Self {
        Rule { alpha: 0.05, smallest_effect: 0.03 }
    }
}

impl Rule {
    /// Returns the verdict on a difference whose p, corrected for all comparisons of the
    /// experiment, is `p_adjusted`.
    ///
    /// A baseline of median 0 (at least half of its runs did not finish) has no ratio. A subject
    /// whose median run finishes is then infinitely faster. One whose median run does not finish is
    /// not better by this measure.
    pub fn verdict(&self, difference: &Difference, p_adjusted: f64) -> Verdict {
        if p_adjusted >= self.alpha {
            return Verdict::NoDifferenceShown;
        }
        match difference.ratio {
            None if difference.subject_median > 0.0 => Verdict::Better,
            None => Verdict::NoDifferenceShown,
            Some(ratio) => self.of_ratio(ratio),
        }
    }

    fn of_ratio(&self, ratio: Interval) -> Verdict {
        if (ratio.value - 1.0).abs() < self.smallest_effect {
            Verdict::NoDifferenceShown
        } else if ratio.lo > 1.0 {
            Verdict::Better
        } else if ratio.hi < 1.0 {
            Verdict::Worse
        } else {
            Verdict::NoDifferenceShown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(value: f64, lo: f64, hi: f64, p: f64) -> Verdict {
        let ratio = Some(Interval { value, lo, hi });
        Rule::default().verdict(&Difference { ratio, p, subject_median: 1.0 }, p)
    }

    #[test]
    fn all_three_conditions_are_needed() {
        assert_eq!(verdict(1.5, 1.4, 1.6, 0.001), Verdict::Better);
        assert_eq!(verdict(0.5, 0.4, 0.6, 0.001), Verdict::Worse);
        assert_eq!(verdict(1.5, 1.4, 1.6, 0.05), Verdict::NoDifferenceShown);
        assert_eq!(verdict(1.02, 1.01, 1.03, 0.001), Verdict::NoDifferenceShown);
        assert_eq!(verdict(1.5, 0.9, 2.6, 0.001), Verdict::NoDifferenceShown);
        assert_eq!(verdict(0.9, 0.8, 1.0, 0.001), Verdict::NoDifferenceShown);
    }

    #[test]
    fn against_an_unfinished_baseline_finishing_is_better() {
        let runs = |speed| (0..10).map(|block| Run { block, speed }).collect::<Vec<_>>();
        let rule = Rule::default();
        let found = compare(&runs(4.0), &runs(0.0), 1).unwrap();
        assert_eq!(found.ratio, None);
        assert_eq!(rule.verdict(&found, found.p), Verdict::Better);
        let back = compare(&runs(0.0), &runs(4.0), 1).unwrap();
        assert_eq!(back.ratio, Some(Interval { value: 0.0, lo: 0.0, hi: 0.0 }));
        assert_eq!(rule.verdict(&back, back.p), Verdict::Worse);
        let neither = compare(&runs(0.0), &runs(0.0), 1).unwrap();
        assert_eq!((neither.ratio, neither.p), (None, 1.0));
        assert_eq!(rule.verdict(&neither, neither.p), Verdict::NoDifferenceShown);
    }
}
