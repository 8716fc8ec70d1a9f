//! Comparison of two experiments: `unspin lab compare A B`.
//!
//! The two were measured at different times, so their blocks have nothing in common. The comparison
//! therefore resamples runs freely, not by block.

use serde::Serialize;
use unspin_model::summary::{CellSummary, Estimate, Summary, Verdict};
use unspin_model::{Cell, Metric};
use unspin_stats::{Bootstrap, Difference, Rule, holm, median_speed, rank_sum_p, smallest_p};

use crate::summarize::estimate::{Corrected, of_ratio, verdict};

mod warnings;

/// Changes from A to B.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompareReport {
    /// What makes the two less comparable: different machines, labels, versions.
    pub warnings: Vec<String>,
    /// Cells that both have.
    pub cells: Vec<CellChange>,
    /// Cells that only A has.
    pub only_in_a: Vec<Cell>,
    /// Cells that only B has.
    pub only_in_b: Vec<Cell>,
}

/// One cell in A and in B.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellChange {
    /// Coordinates of the cell in A.
    pub cell: Cell,
    /// Metric of the cell's workload.
    pub metric: Metric,
    /// Median of A; `None` if at least half of the runs did not finish.
    pub a: Option<Estimate>,
    /// Median of B; `None` if at least half of the runs did not finish.
    pub b: Option<Estimate>,
    /// Number of A's runs.
    pub n_a: u32,
    /// Number of B's runs.
    pub n_b: u32,
    /// Ratio of B's median speed to A's; `None` if A did not finish.
    pub ratio: Option<Estimate>,
    /// p of the rank-sum test.
    pub p: f64,
    /// p after Holm's correction for all cells that are compared.
    pub p_adjusted: f64,
    /// Whether B is better or worse, or no difference is shown.
    pub verdict: Verdict,
}

/// Compares two summaries cell by cell. If each has only one kernel, and the kernels differ, their
/// cells are compared across the kernels. The seed of A seeds the resampling.
pub fn compare(a: &Summary, b: &Summary) -> CompareReport {
    let mut warnings = warnings::of_summaries(a, b);
    let mut found = Vec::new();
    for (before, after) in pairs(a, b) {
        match difference(before, after, a.experiment.seed) {
            Ok(difference) => found.push((before, after, difference)),
            Err(why) => warnings.push(format!("{}: {why}; not compared.", before.cell)),
        }
    }
    // By workload, in A's order; the sort keeps the cells of each workload in their order.
    let at = |cell: &CellSummary| {
        a.cells.iter().position(|first| first.cell.workload == cell.cell.workload)
    };
    found.sort_by_key(|(before, _, _)| at(before));
    let p: Vec<f64> = found.iter().map(|(_, _, difference)| difference.p).collect();
    let smallest = |(before, after, _): &(&CellSummary, &CellSummary, _)| {
        smallest_p(after.n as usize, before.n as usize)
    };
    let smallest: Vec<f64> = found.iter().map(smallest).collect();
    let corrected =
        holm(&p).into_iter().zip(holm(&smallest)).map(|(p, smallest)| Corrected { p, smallest });
    let smallest_effect = a.experiment.smallest_effect.max(b.experiment.smallest_effect);
    let rule = Rule { smallest_effect, ..Rule::default() };
    let change = |((before, after, difference), p): ((&_, &_, _), Corrected)| {
        change(before, after, &difference, p, &rule)
    };
    CompareReport {
        warnings,
        cells: found.into_iter().zip(corrected).map(change).collect(),
        only_in_a: only_in(a, b),
        only_in_b: only_in(b, a),
    }
}

fn pairs<'a>(
    a: &'a Summary,
    b: &'a Summary,
) -> impl Iterator<Item = (&'a CellSummary, &'a CellSummary)> {
    let fits = fits(a, b);
    let partner =
        move |cell: &CellSummary| b.cells.iter().find(|other| fits(&cell.cell, &other.cell));
    a.cells.iter().filter_map(move |cell| Some((cell, partner(cell)?)))
}

/// Returns whether a cell of one experiment and a cell of the other belong together.
fn fits(a: &Summary, b: &Summary) -> impl Fn(&Cell, &Cell) -> bool + use<> {
    let any_kernel = warnings::only_kernel(a).is_some() && warnings::only_kernel(b).is_some();
    move |one, other| {
        let kernel = if any_kernel { &one.kernel } else { &other.kernel };
        *one == Cell { kernel: kernel.clone(), ..other.clone() }
    }
}

fn only_in(these: &Summary, those: &Summary) -> Vec<Cell> {
    let fits = fits(these, those);
    let missing =
        |cell: &&CellSummary| !those.cells.iter().any(|other| fits(&cell.cell, &other.cell));
    these.cells.iter().filter(missing).map(|cell| cell.cell.clone()).collect()
}

fn difference(before: &CellSummary, after: &CellSummary, seed: u64) -> Result<Difference, String> {
    if before.metric != after.metric {
        return Err("A and B measure different metrics".into());
    }
    let (a, b) = (speeds(before), speeds(after));
    let subject_median = median_speed(&b).ok_or("B has no runs")?;
    median_speed(&a).ok_or("A has no runs")?;
    Ok(Difference {
        ratio: Bootstrap::seeded(seed).ratio(&b, &a),
        p: rank_sum_p(&b, &a, seed),
        subject_median,
    })
}

fn speeds(cell: &CellSummary) -> Vec<f64> {
    cell.values.iter().map(|(_, value)| cell.metric.speed(*value)).collect()
}

fn change(
    before: &CellSummary,
    after: &CellSummary,
    difference: &Difference,
    p: Corrected,
    rule: &Rule,
) -> CellChange {
    let n = before.n.min(after.n);
    CellChange {
        cell: before.cell.clone(),
        metric: before.metric.clone(),
        a: before.median,
        b: after.median,
        n_a: before.n,
        n_b: after.n,
        ratio: difference.ratio.and_then(|ratio| of_ratio(ratio, n as usize)),
        p: difference.p,
        p_adjusted: p.p,
        verdict: verdict(rule, difference, p),
    }
}
