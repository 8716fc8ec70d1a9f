//! Which cells are held against which where one figure stands for many of them.

use unspin_model::summary::CellSummary;
use unspin_model::{Cell, ClaimSpec, Summary};

/// A cell's runs, and those of what it is held against.
pub type Pair = (Vec<f64>, Vec<f64>);
type Cells<'a> = (&'a CellSummary, &'a CellSummary);

/// The speeds of each of the scheduler's cells that there is something to hold against.
pub fn pairs<'a>(spec: &ClaimSpec, summary: &'a Summary) -> Vec<(&'a Cell, Pair)> {
    let with_speeds =
        |(subject, rival): Cells<'a>| (&subject.cell, (speeds(subject), speeds(rival)));
    cells(spec, summary).into_iter().map(with_speeds).collect()
}

/// The same cells' values of the spec's co-metric, or of what their workloads measure.
pub fn figures<'a>(spec: &ClaimSpec, summary: &'a Summary) -> Vec<(&'a Cell, Pair)> {
    let values = |cell: &CellSummary| match &spec.figure {
        Some(name) => cell.co_values.get(name).cloned().unwrap_or_default(),
        None => cell.values.iter().filter_map(|(_, value)| *value).collect(),
    };
    let with_values =
        |(subject, rival): Cells<'a>| (&subject.cell, (values(subject), values(rival)));
    cells(spec, summary).into_iter().map(with_values).collect()
}

fn cells<'a>(spec: &ClaimSpec, summary: &'a Summary) -> Vec<Cells<'a>> {
    let is = |asked: &Option<String>, name: &String| asked.as_ref().is_none_or(|a| a == name);
    let wanted = |cell: &&CellSummary| {
        spec.scheduler.as_ref() == Some(&cell.cell.scheduler)
            && is(&spec.topology, &cell.cell.topology)
            && is(&spec.workload, &cell.cell.workload)
            && spec.without.as_ref() != Some(&cell.cell.workload)
    };
    let subjects = summary.cells.iter().filter(wanted);
    subjects.filter_map(|cell| Some((cell, rival(spec, summary, &cell.cell)?))).collect()
}

fn speeds(cell: &CellSummary) -> Vec<f64> {
    cell.values.iter().map(|(_, value)| cell.metric.speed(*value)).collect()
}

/// What a cell is held against; none where that was not run at its place.
fn rival<'a>(spec: &ClaimSpec, summary: &'a Summary, subject: &Cell) -> Option<&'a CellSummary> {
    let baseline = &summary.experiment.baseline_scheduler;
    let against = spec.against.as_ref().unwrap_or(baseline);
    let topology = spec.against_topology.as_ref().unwrap_or(&subject.topology);
    let place = Cell { topology: topology.clone(), ..subject.clone() };
    let here = summary
        .cells
        .iter()
        .filter(|cell| Cell { scheduler: subject.scheduler.clone(), ..cell.cell.clone() } == place);
    if against != "oracle" {
        return here.into_iter().find(|cell| cell.cell.scheduler == *against);
    }
    let is_static = |cell: &&CellSummary| {
        cell.cell.scheduler == *baseline || cell.cell.scheduler.starts_with("hold:")
    };
    let median = |cell: &CellSummary| {
        cell.median.map_or(0.0, |median| cell.metric.speed(Some(median.value)))
    };
    let choices: Vec<&CellSummary> = here.filter(is_static).collect();
    // With the baseline alone there was no choice.
    let best = choices.iter().max_by(|a, b| median(a).total_cmp(&median(b))).copied();
    best.filter(|_| choices.len() > 1)
}
