//! Claims about the accuracy of the ground truth: injected off intervals, compared with the
//! observed ones.

use unspin_model::summary::{Estimate, TruthError};

use super::{Figure, shares};

/// Returns the median error; the interval's ends are the smallest median of a length, and the
/// largest error.
pub fn error(truth: &TruthError) -> Option<Figure> {
    let medians = truth.by_length.iter().map(|at| at.median_us);
    let worst = medians.clone().max_by(f64::total_cmp)?;
    let least = medians.min_by(f64::total_cmp)?;
    let largest = truth.by_length.iter().map(|at| at.max_us).max_by(f64::total_cmp)?;
    let estimate = Estimate { value: worst, lo: least, hi: largest };
    Some(Figure::of_all(Some(estimate), compared(truth), "us"))
}

/// Returns the share of intervals that were missed, or observed with too large an error.
pub fn beyond(truth: &TruthError) -> Figure {
    let beyond: f64 = truth.by_length.iter().map(|at| at.beyond * at.n as f64).sum();
    shares::share(beyond.round() as u64 + truth.missing, compared(truth) + truth.missing)
}

/// Returns the number of intervals compared. Those that hit a vCPU that was not on, or that another
/// thread of the host prolonged, were injected but not compared.
fn compared(truth: &TruthError) -> u64 {
    truth.by_length.iter().map(|at| at.n).sum()
}
