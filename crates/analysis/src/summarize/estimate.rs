//! From intervals of speeds to estimates of values and ratios.

use unspin_model::summary::{Estimate, Verdict};
use unspin_model::{Better, Metric};
use unspin_stats::{Bootstrap, Difference, Interval, Rule, median};

/// A median speed's interval as values of the metric. For a lower-is-better
/// metric the ends change places, and an end of speed 0 becomes unbounded.
pub fn of_values(metric: &Metric, speed: Interval) -> Option<Estimate> {
    let bound = |speed| metric.value(speed).unwrap_or(f64::INFINITY);
    let (lo, hi) = match metric.better {
        Better::Higher => (speed.lo, speed.hi),
        Better::Lower => (bound(speed.hi), bound(speed.lo)),
    };
    Some(Estimate { value: metric.value(speed.value)?, lo, hi })
}

/// A ratio of speeds; `None` where it is infinite.
pub fn of_ratio(ratio: Interval) -> Option<Estimate> {
    let Interval { value, lo, hi } = ratio;
    value.is_finite().then_some(Estimate { value, lo, hi })
}

/// The median of plain figures with its interval; `None` for no figures.
pub fn of_figures(figures: &[f64], seed: u64) -> Option<Estimate> {
    Bootstrap::seeded(seed).median(figures).and_then(of_ratio)
}

/// The median of the figures that an iterator yields.
pub fn median_of(figures: impl Iterator<Item = f64>) -> Option<f64> {
    median(&figures.collect::<Vec<_>>())
}

/// What a rule makes of a difference whose p is corrected for all comparisons.
pub fn verdict(rule: &Rule, difference: &Difference, p_adjusted: f64) -> Verdict {
    match rule.verdict(difference, p_adjusted) {
        unspin_stats::Verdict::Better => Verdict::Better,
        unspin_stats::Verdict::Worse => Verdict::Worse,
        unspin_stats::Verdict::NoDifferenceShown => Verdict::NoDifferenceShown,
    }
}
