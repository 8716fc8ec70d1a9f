//! Which cells are held against which where one figure stands for many of them.

use unspin_model::summary::CellSummary;
use unspin_model::{Cell, ClaimSpec, Summary};

/// A cell's speeds, and those of what it is held against.
pub type Pair = (Vec<f64>, Vec<f64>);

/// Each of the scheduler's cells that there is something to hold against.
pub fn pairs<'a>(spec: &ClaimSpec, summary: &'a Summary) -> Vec<(&'a Cell, Pair)> {
    let scheduler = spec.scheduler.as_deref().unwrap_or_default();
    let wanted = |cell: &&CellSummary| {
        cell.cell.scheduler == scheduler
            && spec.topology.as_ref().is_none_or(|name| *name == cell.cell.topology)
    };
    let subjects = summary.cells.iter().filter(wanted);
    subjects
        .filter_map(|subject| {
            let rival = rival(spec, summary, &subject.cell)?;
            Some((&subject.cell, (speeds(subject), speeds(rival))))
        })
        .collect()
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
