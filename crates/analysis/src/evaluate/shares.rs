//! Shares of counts.

use unspin_model::summary::CellSummary;
use unspin_model::{ClaimSpec, Summary};
use unspin_stats::wilson;

use super::{Figure, estimate, is_about, scaled};

/// Returns `part` of `whole` in percent.
pub fn share(part: u64, whole: u64) -> Figure {
    let percent = wilson(part, whole).map(estimate);
    Figure::of_all(percent.map(|estimate| scaled(estimate, 100.0)), whole, "%")
}

/// Returns the share of runs that ended. A run that did not finish counts as a result in a topology
/// where that is the phenomenon (`spec.topology`).
pub fn finished(spec: &ClaimSpec, summary: &Summary) -> Figure {
    let failed: u64 = summary.failures.values().sum();
    let should_end = |cell: &&CellSummary| spec.topology.as_ref() != Some(&cell.cell.topology);
    let unfinished: u64 =
        summary.cells.iter().filter(should_end).map(|cell| u64::from(cell.unfinished)).sum();
    share(summary.done.saturating_sub(unfinished), summary.done + failed)
}

/// Returns the share of the runs of all wanted cells in which the spec's co-metric is 1. A run
/// without the co-metric counts as 0. So does a failed run, because the subject may have caused the
/// failure.
pub fn of_figure(spec: &ClaimSpec, summary: &Summary) -> Figure {
    let wanted = |cell: &&CellSummary| is_about(spec, cell);
    let name = spec.figure.as_deref().unwrap_or_default();
    let (mut ones, mut runs) = (0, 0);
    for cell in summary.cells.iter().filter(wanted) {
        let values = cell.co_values.get(name).into_iter().flatten();
        ones += values.filter(|(_, value)| *value == 1.0).count() as u64;
        runs += u64::from(cell.n) + u64::from(cell.failed);
    }
    share(ones, runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages_with_an_interval() {
        let figure = share(1, 200);
        let estimate = figure.estimate.unwrap();
        assert!((estimate.value - 0.5).abs() < 1e-9 && estimate.lo > 0.0 && estimate.hi < 5.0);
        assert_eq!(figure.n, 200);
        assert!(share(0, 0).estimate.is_none());
    }
}
