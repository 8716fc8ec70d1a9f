//! The oracle: the best static choice, found by trying them all.
//!
//! The choices are `stock` and every `hold:K`. To take the one with the best
//! median and report that median would flatter the oracle: among choices that do
//! not differ, the luckiest one wins, and its luck is counted as gain (the
//! winner's curse). So the choice for a block is made from the other blocks only,
//! and the block's own run of that choice is what the oracle gets
//! (leave-one-block-out; Stone, "Cross-validatory choice and assessment of
//! statistical predictions", 1974). Where choices are close this errs on the low side:
//! a block in which one of them did well is missing when the choice for it is made.

use std::collections::BTreeSet;

use unspin_model::{Cell, RunRecord};
use unspin_stats::median_speed;

use super::cells::{CellRuns, Cells};

/// The oracle's runs and the choice that it made most often.
pub struct Oracle<'a> {
    pub runs: CellRuns<'a>,
    pub choice: String,
}

/// The oracle beside the `baseline` cell; `None` where no `hold:K` was tried
/// or there are too few blocks to choose without hindsight.
pub fn oracle<'a>(baseline: &Cell, cells: &Cells<'a>) -> Option<Oracle<'a>> {
    let choices = choices(baseline, cells);
    choices.iter().any(|choice| choice.held > 0).then(|| without_hindsight(&choices))?
}

/// A static choice and its runs.
struct Choice<'c, 'a> {
    scheduler: &'c str,
    /// The vCPUs that tasks are held to; 0 for `stock`.
    held: u32,
    runs: &'c CellRuns<'a>,
}

/// In order of preference where they do equally well: stock, then few vCPUs.
fn choices<'c, 'a>(beside: &Cell, cells: &'c Cells<'a>) -> Vec<Choice<'c, 'a>> {
    let same_place =
        |cell: &Cell| Cell { scheduler: beside.scheduler.clone(), ..cell.clone() } == *beside;
    let mut choices: Vec<_> = cells
        .iter()
        .filter(|(cell, runs)| same_place(cell) && !runs.observed.is_empty())
        .filter_map(|(cell, runs)| {
            Some(Choice { scheduler: &cell.scheduler, held: held(&cell.scheduler)?, runs })
        })
        .collect();
    choices.sort_by_key(|choice| choice.held);
    choices
}

fn held(scheduler: &str) -> Option<u32> {
    match scheduler {
        "stock" => Some(0),
        other => other.strip_prefix("hold:")?.parse().ok(),
    }
}

fn without_hindsight<'a>(choices: &[Choice<'_, 'a>]) -> Option<Oracle<'a>> {
    let mut picked = CellRuns::default();
    let mut times = vec![0u32; choices.len()];
    for block in blocks(choices) {
        let Some(best) = best_elsewhere(choices, block) else { continue };
        let own = in_block(choices[best].runs, block);
        times[best] += own.len() as u32;
        picked.observed.extend(own);
    }
    let most = first_largest(times.iter().map(|&n| Some(f64::from(n))))?;
    let choice = choices[most].scheduler.to_string();
    (!picked.observed.is_empty()).then_some(Oracle { runs: picked, choice })
}

fn blocks(choices: &[Choice]) -> BTreeSet<u32> {
    choices.iter().flat_map(|choice| &choice.runs.observed).map(|record| record.block).collect()
}

fn in_block<'a>(runs: &CellRuns<'a>, block: u32) -> Vec<&'a RunRecord> {
    runs.observed.iter().copied().filter(|record| record.block == block).collect()
}

/// The choice with the best median speed in all blocks but this one.
fn best_elsewhere(choices: &[Choice], block: u32) -> Option<usize> {
    first_largest(choices.iter().map(|choice| {
        let elsewhere = choice.runs.speeds().into_iter().filter(|run| run.block != block);
        median_speed(&elsewhere.map(|run| run.speed).collect::<Vec<_>>())
    }))
}

/// The index of the largest figure, the first one of equals.
fn first_largest(figures: impl Iterator<Item = Option<f64>>) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for (index, figure) in figures.enumerate() {
        if let Some(figure) = figure.filter(|f| best.is_none_or(|(_, largest)| *f > largest)) {
            best = Some((index, figure));
        }
    }
    best.map(|(index, _)| index)
}
