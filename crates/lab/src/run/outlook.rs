//! What a command would carry out.

use super::Timings;
use super::executor::lanes;
use crate::experiment::{Experiment, plan};

/// The runs of an experiment, and about how many seconds they take if none is done.
pub fn expected(experiment: &Experiment) -> (u64, f64) {
    let boots = plan(experiment);
    let runs = boots.iter().map(|boot| boot.runs.len() as u64).sum();
    (runs, Timings::load().estimate_s(experiment, &boots, lanes(None), |_| false))
}
