//! From intervals of speeds to estimates of values and ratios.

use unspin_model::summary::{Estimate, Verdict};
use unspin_model::{Better, Metric};
use unspin_stats::{Bootstrap, Difference, Interval, Rule, median};

/// Minimum number of runs for an interval.
const RUNS_MIN: usize = 2;

/// Returns an estimate from `n` runs. If they are too few for an interval, its ends are not a
/// number, which JSON writes as `null`.
fn of_runs(estimate: Estimate, n: usize) -> Estimate {
    match n >= RUNS_MIN {
        true => estimate,
        false => Estimate { lo: f64::NAN, hi: f64::NAN, ..estimate },
    }
}

/// Returns the interval of the median speed of `n` runs as values of the metric. For a
/// lower-is-better metric, the ends change places, and an end of speed 0 becomes unbounded.
pub fn of_values(metric: &Metric, speed: Interval, n: usize) -> Option<Estimate> {
    let bound = |speed| metric.value(speed).unwrap_or(f64::INFINITY);
    let (lo, hi) = match metric.better {
        Better::Higher => (speed.lo, speed.hi),
        Better::Lower => (bound(speed.hi), bound(speed.lo)),
    };
    Some(of_runs(Estimate { value: metric.value(speed.value)?, lo, hi }, n))
}

/// Returns a ratio of speeds, of which one has only `n` runs; `None` if it is infinite.
pub fn of_ratio(ratio: Interval, n: usize) -> Option<Estimate> {
    let Interval { value, lo, hi } = ratio;
    value.is_finite().then_some(of_runs(Estimate { value, lo, hi }, n))
}

/// Returns the median of plain figures with its interval; `None` for no figures. A share of 0 is a
/// figure, unlike a speed of 0.
pub fn of_figures(figures: &[f64], seed: u64) -> Option<Estimate> {
    let median = Bootstrap::seeded(seed).median_of_figures(figures);
    median.and_then(|figure| of_ratio(figure, figures.len()))
}

/// Returns the median of the figures that an iterator yields.
pub fn median_of(figures: impl Iterator<Item = f64>) -> Option<f64> {
    median(&figures.collect::<Vec<_>>())
}

/// A p, and the smallest p that as many runs can have, both corrected for all comparisons.
#[derive(Clone, Copy)]
pub struct Corrected {
    /// p of this difference.
    pub p: f64,
    /// Smallest p of any difference between that many runs.
    pub smallest: f64,
}

/// Returns the verdict of a rule on a difference.
pub fn verdict(rule: &Rule, difference: &Difference, corrected: Corrected) -> Verdict {
    match rule.verdict(difference, corrected.p) {
        unspin_stats::Verdict::Better => Verdict::Better,
        unspin_stats::Verdict::Worse => Verdict::Worse,
        unspin_stats::Verdict::NoDifferenceShown if corrected.smallest >= rule.alpha => {
            Verdict::TooFewRuns
        }
        unspin_stats::Verdict::NoDifferenceShown => Verdict::NoDifferenceShown,
    }
}
