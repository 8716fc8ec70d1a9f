//! The rows of the result table, shared by terminal and Markdown.

use unspin_model::summary::{
    CellSummary, Comparison, ComparisonKind, Estimate, ExperimentInfo, Verdict,
};

use crate::{format, view};

/// A row of the table: a cell with its comparison, or a comparison alone.
pub struct Row {
    /// Name of the place; empty if it is that of the row above.
    pub place: String,
    /// The guest scheduler, or another judged subject.
    pub scheduler: String,
    /// Median of the cell; `None` if there is none to show.
    pub median: Option<Estimate>,
    /// Runs that did not finish, and failed runs, in words; empty if there are none.
    pub note: String,
    /// Ratio with its interval; empty without a comparison.
    pub ratio: String,
    /// Verdict of the comparison.
    pub verdict: Option<Verdict>,
    /// Verdict in words, with its baseline if that is not the baseline scheduler.
    pub verdict_text: String,
    /// Number of runs that count.
    pub n: Option<u32>,
}

/// Returns the rows of one workload.
pub fn of_workload(workload: &view::Workload<'_>, experiment: &ExperimentInfo) -> Vec<Row> {
    workload.places.iter().flat_map(|place| of_place(place, experiment)).collect()
}

fn of_place(place: &view::Place<'_>, experiment: &ExperimentInfo) -> Vec<Row> {
    let baseline = place.cell(&experiment.baseline_scheduler);
    let mut rows = Vec::new();
    let loss = place.of_kind(ComparisonKind::Topology).next();
    match baseline {
        Some(cell) => rows.push(row(cell.cell.scheduler.clone(), Some(cell), loss)),
        None => {
            rows.extend(place.cells.iter().map(|c| row(c.cell.scheduler.clone(), Some(c), None)))
        }
    }
    // A kernel's comparison has its own row, because the comparison in the first row is with the
    // baseline topology.
    let of_baseline = |c: &&Comparison| c.subject.scheduler == experiment.baseline_scheduler;
    for comparison in place.of_kind(ComparisonKind::Kernel).filter(of_baseline) {
        rows.push(row("same, by kernel".into(), None, Some(comparison)));
    }
    for comparison in place.oracle().into_iter().chain(place.schedulers()) {
        let cell = place.cell(&comparison.subject.scheduler);
        rows.push(row(view::subject(comparison), cell, Some(comparison)));
    }
    if baseline.is_some() {
        let apart = |cell: &&&CellSummary| uncompared(place, cell, experiment);
        rows.extend(
            place.cells.iter().filter(apart).map(|c| row(c.cell.scheduler.clone(), Some(c), None)),
        );
    }
    if let Some(first) = rows.first_mut() {
        first.place = place.name.clone();
    }
    rows
}

/// Returns whether nothing was compared with the baseline, for instance because all of the
/// baseline's runs failed. Such a cell must not be missing from the table.
fn uncompared(place: &view::Place<'_>, cell: &CellSummary, experiment: &ExperimentInfo) -> bool {
    let scheduler = &cell.cell.scheduler;
    let mut compared = place.of_kind(ComparisonKind::Scheduler);
    *scheduler != experiment.baseline_scheduler
        && !compared.any(|c| c.subject.scheduler == *scheduler)
}

fn row(scheduler: String, cell: Option<&CellSummary>, comparison: Option<&Comparison>) -> Row {
    Row {
        place: String::new(),
        scheduler,
        median: cell.and_then(|c| c.median),
        note: cell.map(note).unwrap_or_default(),
        ratio: comparison.map(view::ratio_text).unwrap_or_default(),
        verdict: comparison.map(|c| c.verdict),
        verdict_text: comparison.map(verdict_text).unwrap_or_default(),
        n: cell.map(|c| c.n),
    }
}

/// Describes anything unusual about a cell's runs.
pub fn note(cell: &CellSummary) -> String {
    let mut parts = Vec::new();
    if cell.unfinished > 0 {
        parts.push(format!("did not finish {}/{}", cell.unfinished, cell.n));
    }
    if cell.failed > 0 {
        parts.push(format!("{} failed", cell.failed));
    }
    parts.join(", ")
}

fn verdict_text(comparison: &Comparison) -> String {
    let verdict = format::verdict(comparison.verdict);
    let other = matches!(comparison.kind, ComparisonKind::Topology | ComparisonKind::Kernel);
    match comparison.verdict {
        Verdict::NoDifferenceShown | Verdict::TooFewRuns => verdict.into(),
        _ if other => format!("{verdict} than {}", view::against(comparison)),
        _ => verdict.into(),
    }
}
