//! Ratios from the comparisons of the summary.

use unspin_model::summary::{CellSummary, Comparison, ComparisonKind};
use unspin_model::{Cell, ClaimSpec, Summary};

use super::{Figure, names, overall, without_interval};
use crate::summarize::oracle;

/// Returns the ratio of each wanted comparison of a kind. An expected comparison that is missing
/// has a figure without a value: one of its cells has no result.
pub fn of_kind(spec: &ClaimSpec, summary: &Summary, kind: ComparisonKind) -> Vec<Figure> {
    let wanted = |subject: &Cell| {
        let topology = spec.topology.as_ref().is_none_or(|name| *name == subject.topology);
        let scheduler = spec.scheduler.as_ref().is_none_or(|name| *name == subject.scheduler);
        topology && scheduler
    };
    let found = summary.comparisons.iter().filter(|c| c.kind == kind);
    let found: Vec<&Comparison> = found.filter(|c| wanted(&c.subject)).collect();
    let planned = summary.cells.iter().filter_map(|cell| subject(&cell.cell, kind, summary));
    let lacking = planned
        .filter(|subject| wanted(subject) && found.iter().all(|c| c.subject != *subject))
        .map(|subject| not_measured(&subject));
    found.iter().map(|c| figure(c, summary)).chain(lacking).collect()
}

fn figure(comparison: &Comparison, summary: &Summary) -> Figure {
    let runs_of = |wanted: &Cell| {
        summary.cells.iter().find(|cell| cell.cell == *wanted).map(|cell| u64::from(cell.n))
    };
    let subject = match comparison.kind {
        // The oracle has no cell of its own, but the runs of its choices.
        ComparisonKind::Oracle => oracle_runs(&comparison.subject, summary),
        _ => runs_of(&comparison.subject),
    };
    let n = [runs_of(&comparison.baseline), subject].into_iter().flatten().min().unwrap_or(0);
    // Without a ratio, the baseline did not finish.
    let alone = if comparison.subject_finished { f64::INFINITY } else { 1.0 };
    let ratio = comparison.ratio.unwrap_or_else(|| without_interval(alone));
    Figure { replace: names(&comparison.subject), ..Figure::of_blocks(Some(ratio), n) }
}

fn oracle_runs(oracle: &Cell, summary: &Summary) -> Option<u64> {
    let here = summary.cells.iter().filter(|cell| {
        Cell { scheduler: oracle.scheduler.clone(), ..cell.cell.clone() } == *oracle
    });
    let runs = overall::of_oracle(&here.collect::<Vec<_>>(), &overall::speeds_of)?;
    Some(runs.len() as u64)
}

fn not_measured(subject: &Cell) -> Figure {
    let lacking = format!("no run of `{subject}`, or of what it is compared with, has a result");
    Figure { lacking, replace: names(subject), ..Figure::of_all(None, 0, "x") }
}

/// Returns the subject of a cell's comparison of a kind; `None` if its baseline was not planned.
fn subject(cell: &Cell, kind: ComparisonKind, summary: &Summary) -> Option<Cell> {
    let info = &summary.experiment;
    let is_baseline = cell.scheduler == info.baseline_scheduler;
    let has = |wanted: &Cell| summary.cells.iter().any(|other| other.cell == *wanted);
    match kind {
        ComparisonKind::Scheduler => {
            let baseline = Cell { scheduler: info.baseline_scheduler.clone(), ..cell.clone() };
            (!is_baseline && has(&baseline)).then(|| cell.clone())
        }
        ComparisonKind::Topology => {
            let baseline = Cell { topology: info.baseline_topology.clone()?, ..cell.clone() };
            (is_baseline && baseline != *cell && has(&baseline)).then(|| cell.clone())
        }
        ComparisonKind::Oracle => {
            let holds = |other: &CellSummary| {
                let place = Cell { scheduler: cell.scheduler.clone(), ..other.cell.clone() };
                place == *cell && oracle::is_held(&other.cell.scheduler)
            };
            let tried = is_baseline && summary.cells.iter().any(holds);
            tried.then(|| Cell { scheduler: "oracle".into(), ..cell.clone() })
        }
        ComparisonKind::Kernel => None,
    }
}
