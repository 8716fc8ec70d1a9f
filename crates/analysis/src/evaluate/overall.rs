//! The cells that a figure of many cells compares.

use unspin_model::summary::CellSummary;
use unspin_model::{Better, Cell, ClaimSpec, Summary};
use unspin_stats::{Interval, Run};

use super::{Figure, estimate};
use crate::summarize::oracle;

/// A cell of a scheduler, and the runs with which it is compared. If the figures are not speeds,
/// they take the place of the runs' speeds.
pub struct Pair<'a> {
    pub cell: &'a Cell,
    pub subject: Vec<Run>,
    pub rival: Vec<Run>,
}

impl Pair<'_> {
    /// Returns both sides.
    pub fn sides(&self) -> (&[Run], &[Run]) {
        (&self.subject, &self.rival)
    }

    /// Returns the number of runs of the smaller side.
    pub fn runs(&self) -> u64 {
        self.subject.len().min(self.rival.len()) as u64
    }

    /// Describes what is missing, if a side has no run.
    pub fn lacking(&self) -> Option<String> {
        match (self.subject.is_empty(), self.rival.is_empty()) {
            (true, _) => Some(format!("no run of `{}` gives the figure", self.cell)),
            (_, true) => {
                Some(format!("no run that `{}` is compared with gives the figure", self.cell))
            }
            (false, false) => None,
        }
    }
}

/// Returns one figure of all pairs; its number of runs is the smallest of any pair. The figure has
/// no value if a planned cell has none, because the others alone would pass for all of them.
/// Returns `None` if there is nothing to compare.
pub fn of_all(
    pairs: &[Pair],
    summary: &Summary,
    runs: impl Fn(&Pair) -> u64,
    found: impl FnOnce() -> Option<Interval>,
) -> Option<Figure> {
    let missing = missing_cells(summary).or_else(|| pairs.iter().find_map(Pair::lacking));
    if let Some(lacking) = missing {
        return Some(Figure { lacking, ..Figure::of_all(None, 0, "x") });
    }
    let n = pairs.iter().map(runs).min()?;
    let lacking = "a ratio of 0 and one without a bound have no mean".to_owned();
    Some(Figure { lacking, ..Figure::of_blocks(found().map(estimate), n) })
}

/// Describes how many planned cells have no record, if any. Every cell is planned once in each
/// repeat.
fn missing_cells(summary: &Summary) -> Option<String> {
    let planned = summary.planned.checked_div(u64::from(summary.experiment.repeats))?;
    let recorded = summary.cells.iter().filter(|cell| cell.n + cell.failed > 0).count();
    let missing = planned.saturating_sub(recorded as u64);
    let text = || {
        format!("it is a figure of all cells, and {missing} of {planned} planned ones have no run")
    };
    (missing > 0).then(text)
}

/// Returns the speeds of each of the scheduler's cells that has a counterpart.
pub fn speeds<'a>(spec: &ClaimSpec, summary: &'a Summary) -> Vec<Pair<'a>> {
    pairs(spec, summary, speeds_of)
}

/// Returns the same cells' values of the spec's co-metric, or of their workloads' metric. A run
/// that did not finish has the worst value.
pub fn figures<'a>(spec: &ClaimSpec, summary: &'a Summary) -> Vec<Pair<'a>> {
    let run = |(block, value): &(u32, f64)| Run { block: *block, speed: *value };
    pairs(spec, summary, |cell| match &spec.figure {
        Some(name) => cell.co_values.get(name).into_iter().flatten().map(run).collect(),
        None => {
            let worst = match cell.metric.better {
                Better::Higher => 0.0,
                Better::Lower => f64::INFINITY,
            };
            let values = cell.values.iter().map(|(block, value)| (*block, value.unwrap_or(worst)));
            values.map(|value| run(&value)).collect()
        }
    })
}

fn pairs<'a>(
    spec: &ClaimSpec,
    summary: &'a Summary,
    figures: impl Fn(&CellSummary) -> Vec<Run>,
) -> Vec<Pair<'a>> {
    let is = |asked: &Option<String>, name: &String| asked.as_ref().is_none_or(|a| a == name);
    let wanted = |cell: &&CellSummary| {
        spec.scheduler.as_ref() == Some(&cell.cell.scheduler)
            && is(&spec.topology, &cell.cell.topology)
            && is(&spec.workload, &cell.cell.workload)
            && spec.without.as_ref() != Some(&cell.cell.workload)
    };
    let pair = |cell: &'a CellSummary| {
        let rival = rival(spec, summary, &cell.cell, &figures)?;
        Some(Pair { cell: &cell.cell, subject: figures(cell), rival })
    };
    summary.cells.iter().filter(wanted).filter_map(pair).collect()
}

/// Returns the speed of each run of a cell, 0 for those that did not finish.
pub fn speeds_of(cell: &CellSummary) -> Vec<Run> {
    let run = |(block, value): &(u32, Option<f64>)| Run {
        block: *block,
        speed: cell.metric.speed(*value),
    };
    cell.values.iter().map(run).collect()
}

/// Returns the runs with which a cell is compared; empty if its place has no such run.
fn rival(
    spec: &ClaimSpec,
    summary: &Summary,
    subject: &Cell,
    figures: &impl Fn(&CellSummary) -> Vec<Run>,
) -> Option<Vec<Run>> {
    let against = spec.against.as_ref().unwrap_or(&summary.experiment.baseline_scheduler);
    let topology = spec.against_topology.as_ref().unwrap_or(&subject.topology);
    let place = Cell { topology: topology.clone(), ..subject.clone() };
    let at_place = |cell: &&CellSummary| {
        Cell { scheduler: subject.scheduler.clone(), ..cell.cell.clone() } == place
    };
    let here: Vec<&CellSummary> = summary.cells.iter().filter(at_place).collect();
    if against != "oracle" {
        let rival = here.into_iter().find(|cell| cell.cell.scheduler == *against);
        return rival.map(figures);
    }
    of_oracle(&here, figures)
}

/// Returns the figures of the runs that the oracle takes among the cells of a place; `None` if the
/// experiment tried no static choice there.
pub fn of_oracle(
    here: &[&CellSummary],
    figures: &impl Fn(&CellSummary) -> Vec<Run>,
) -> Option<Vec<Run>> {
    here.iter().find(|cell| oracle::is_held(&cell.cell.scheduler))?;
    let candidates = here.iter().map(|cell| (cell.cell.scheduler.as_str(), speeds_of(cell)));
    let picks = oracle::picks(&candidates.collect::<Vec<_>>()).unwrap_or_default();
    let own = |pick: &oracle::Pick| {
        let block = pick.block;
        figures(here[pick.choice]).into_iter().filter(move |run| run.block == block)
    };
    Some(picks.iter().flat_map(own).collect())
}
