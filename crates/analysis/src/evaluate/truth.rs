//! Claims about how well the truth is observed: injected off intervals against those seen.

use unspin_model::summary::{Estimate, TruthError};

use super::{Figure, shares};

/// The median error; the ends are the least median of a length, and the largest error.
pub fn error(truth: &TruthError) -> Option<Figure> {
    let medians = truth.by_length.iter().map(|at| at.median_us);
    let worst = medians.clone().max_by(f64::total_cmp)?;
    let least = medians.min_by(f64::total_cmp)?;
    let largest = truth.by_length.iter().map(|at| at.max_us).max_by(f64::total_cmp)?;
    let estimate = Estimate { value: worst, lo: least, hi: largest };
    Some(Figure::of_all(Some(estimate), compared(truth), "us"))
}

/// Those that were missed, or observed with too large an error.
pub fn beyond(truth: &TruthError) -> Figure {
    let beyond: f64 = truth.by_length.iter().map(|at| at.beyond * at.n as f64).sum();
    shares::share(beyond.round() as u64 + truth.missing, compared(truth) + truth.missing)
}

/// How many were compared. One that met a vCPU that was not on, or that another thread of the
/// host prolonged, was injected and is not among them.
fn compared(truth: &TruthError) -> u64 {
    truth.by_length.iter().map(|at| at.n).sum()
}
