//! Statistics for interleaved experiments: pure functions, no I/O, no clock.
//!
//! An experiment runs each of its cells once in every block, in random order. Six methods, one file
//! each, evaluate its runs:
//!
//! - [`bootstrap`]: intervals of a median and of a ratio of two medians;
//! - [`pooled`]: quantiles of the values that many runs counted, taken together;
//! - [`permutation`]: the p of a difference between two cells;
//! - [`correct`]: that p, corrected for the experiment's many comparisons;
//! - [`effect`]: the verdict, which also asks for an effect worth reporting;
//! - [`aa`]: how often these methods together call a cell different from itself.
//!
//! Values are speeds: more is better, and a run that did not finish has speed 0, below every run
//! that did. No value may be NaN. Every function that draws random numbers takes a seed, and the
//! same seed gives the same result.

pub mod aa;
pub mod ab;
pub mod bootstrap;
pub mod correct;
pub mod correlation;
pub mod effect;
pub mod fairness;
pub mod order;
pub mod permutation;
pub mod pooled;
pub mod proportion;

pub use aa::{FalsePositives, false_positives};
pub use bootstrap::{Bootstrap, Interval, ratio_of_figures, ratio_of_speeds};
pub use correct::holm;
pub use correlation::{Correlation, spearman, spearman_test};
pub use effect::{Difference, Rule, Verdict, compare};
pub use fairness::jain;
pub use order::{median, median_speed, quantile, ranks};
pub use permutation::{blocked_rank_sum_p, rank_sum_p, smallest_p};
pub use pooled::{Pool, counted};
pub use proportion::wilson;

/// A run: its block and its speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Number of the block (repeat). Runs of different cells in one block are a pair.
    pub block: u32,
    /// Speed, at least 0; 0 for a run that did not finish.
    pub speed: f64,
}

/// Returns the speeds of some runs, in their order.
pub(crate) fn speeds(runs: &[Run]) -> Vec<f64> {
    runs.iter().map(|run| run.speed).collect()
}
