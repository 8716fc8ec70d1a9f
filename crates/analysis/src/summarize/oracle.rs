//! The oracle: the best static choice, found by trying them all.
//!
//! The choices are `stock` and every `hold:K`. To take the one with the best median, and report
//! that median, would flatter the oracle. Among choices that do not differ, the luckiest one wins,
//! and its luck is counted as a gain (the winner's curse). So the oracle chooses for each block by
//! the other blocks only, and gets the block's own run of that choice (leave-one-block-out; Stone,
//! "Cross-validatory choice and assessment of statistical predictions", 1974). If choices are
//! close, this errs on the low side: when the oracle chooses for a block in which one of them did
//! well, that block is missing.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use unspin_model::Cell;
use unspin_stats::{Run, median_speed};

use super::cells::{CellRuns, Cells};

/// Runs of the oracle, and the choice that it made most often.
pub struct Oracle<'a> {
    pub runs: CellRuns<'a>,
    pub choice: String,
}

/// Returns the oracle for a `baseline` cell. Returns `None` if no `hold:K` was tried, or if there
/// are too few blocks to choose without hindsight.
pub fn oracle<'a>(baseline: &Cell, cells: &Cells<'a>) -> Option<Oracle<'a>> {
    let same_place =
        |cell: &Cell| Cell { scheduler: baseline.scheduler.clone(), ..cell.clone() } == *baseline;
    let here: Vec<_> = cells.iter().filter(|(cell, _)| same_place(cell)).collect();
    let speeds = here.iter().map(|(cell, runs)| (cell.scheduler.as_str(), runs.speeds()));
    let picks = picks(&speeds.collect::<Vec<_>>())?;
    let runs_of = |pick: &Pick| here[pick.choice].1.observed.iter().copied();
    let own = |pick: &Pick| {
        let block = pick.block;
        runs_of(pick).filter(move |record| record.block == block).collect::<Vec<_>>()
    };
    let observed = picks.iter().flat_map(own).collect();
    let choice = most_often(&picks, |choice| held(&here[choice].0.scheduler))?;
    let choice = here[choice].0.scheduler.clone();
    Some(Oracle { runs: CellRuns { observed, failed: Vec::new() }, choice })
}

/// Choice for a block: an index into the candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    pub block: u32,
    pub choice: usize,
}

/// Returns the static choice for each block in which it has a run, made by the other blocks.
/// `candidates` are schedulers and their runs in one place; those that are not a static choice are
/// skipped. Returns `None` if no `hold:K` was tried, or if no block has a choice.
pub fn picks(candidates: &[(&str, Vec<Run>)]) -> Option<Vec<Pick>> {
    // The order decides between equals: stock first, then few vCPUs.
    let mut choices: Vec<(u32, usize)> = candidates
        .iter()
        .enumerate()
        .filter(|(_, (_, runs))| !runs.is_empty())
        .filter_map(|(index, (scheduler, _))| Some((held(scheduler)?, index)))
        .collect();
    choices.sort_unstable();
    choices.iter().find(|(held, _)| *held > 0)?;
    let runs = |index: usize| candidates[index].1.iter();
    let blocks: BTreeSet<u32> =
        choices.iter().flat_map(|(_, index)| runs(*index)).map(|run| run.block).collect();
    let median_elsewhere = |index: usize, block: u32| {
        let elsewhere = runs(index).filter(|run| run.block != block);
        median_speed(&elsewhere.map(|run| run.speed).collect::<Vec<_>>())
    };
    let pick = |block: u32| {
        let medians = choices.iter().map(|(_, index)| median_elsewhere(*index, block));
        let (_, choice) = choices[first_largest(medians)?];
        runs(choice).any(|run| run.block == block).then_some(Pick { block, choice })
    };
    let picks: Vec<Pick> = blocks.into_iter().filter_map(pick).collect();
    (!picks.is_empty()).then_some(picks)
}

/// Returns the number of vCPUs to which a static choice restricts tasks; 0 for `stock`, `None` for
/// other schedulers.
pub(crate) fn held(scheduler: &str) -> Option<u32> {
    match scheduler {
        "stock" => Some(0),
        other => other.strip_prefix("hold:")?.parse().ok(),
    }
}

/// Returns whether a scheduler is a static choice other than `stock`.
pub(crate) fn is_held(scheduler: &str) -> bool {
    held(scheduler).is_some_and(|vcpus| vcpus > 0)
}

/// Returns the choice of most picks; of equals, the one with the fewest vCPUs.
fn most_often(picks: &[Pick], held: impl Fn(usize) -> Option<u32>) -> Option<usize> {
    let times = |choice| picks.iter().filter(|pick| pick.choice == choice).count();
    let rank = |choice: &usize| (times(*choice), Reverse(held(*choice)));
    picks.iter().map(|pick| pick.choice).max_by_key(rank)
}

/// Returns the index of the largest figure, the first one of equals.
fn first_largest(figures: impl Iterator<Item = Option<f64>>) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for (index, figure) in figures.enumerate() {
        if let Some(figure) = figure.filter(|f| best.is_none_or(|(_, largest)| *f > largest)) {
            best = Some((index, figure));
        }
    }
    best.map(|(index, _)| index)
}
