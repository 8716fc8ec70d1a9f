//! Selection of the cells to compare, and the verdicts.

use std::collections::BTreeMap;

use unspin_model::Cell;
use unspin_model::summary::{Comparison, ComparisonKind, ExperimentInfo};
use unspin_stats::{Difference, Rule, compare, smallest_p};

use super::cells::{CellRuns, Cells};
use super::estimate::{Corrected, of_ratio, verdict};
use super::oracle::oracle;
use crate::family;

/// Two cells to compare.
struct Pair<'a> {
    kind: ComparisonKind,
    subject: Cell,
    subject_runs: CellRuns<'a>,
    baseline: Cell,
    baseline_runs: CellRuns<'a>,
    choice: Option<String>,
}

/// Returns every comparison of the experiment, with p corrected for all of them.
pub fn comparisons(info: &ExperimentInfo, cells: &Cells) -> Vec<Comparison> {
    let found: Vec<(Pair, Difference)> = pairs(info, cells)
        .into_iter()
        .filter_map(|pair| {
            let (subject, baseline) = (pair.subject_runs.speeds(), pair.baseline_runs.speeds());
            Some((pair, compare(&subject, &baseline, info.seed)?))
        })
        .collect();
    let questions: Vec<_> = found.iter().map(|(pair, _)| (pair.kind, &pair.subject)).collect();
    let p: Vec<f64> = found.iter().map(|(_, difference)| difference.p).collect();
    let smallest: Vec<f64> = found.iter().map(|(pair, _)| pair.smallest_p()).collect();
    let p = family::adjusted(&questions, &p);
    let smallest = family::adjusted(&questions, &smallest);
    let corrected = p.into_iter().zip(smallest).map(|(p, smallest)| Corrected { p, smallest });
    let rule = Rule { smallest_effect: info.smallest_effect, ..Rule::default() };
    found
        .into_iter()
        .zip(corrected)
        .map(|((pair, difference), corrected)| comparison(pair, &difference, corrected, &rule))
        .collect()
}

impl Pair<'_> {
    /// Returns the numbers of runs of the subject and of the baseline.
    fn counts(&self) -> (usize, usize) {
        (self.subject_runs.observed.len(), self.baseline_runs.observed.len())
    }

    fn smallest_p(&self) -> f64 {
        let (subject, baseline) = self.counts();
        smallest_p(subject, baseline)
    }
}

fn comparison(pair: Pair, difference: &Difference, p: Corrected, rule: &Rule) -> Comparison {
    let (subject, baseline) = pair.counts();
    Comparison {
        kind: pair.kind,
        ratio: difference.ratio.and_then(|ratio| of_ratio(ratio, subject.min(baseline))),
        subject_finished: difference.subject_median > 0.0,
        p: difference.p,
        p_adjusted: p.p,
        verdict: verdict(rule, difference, p),
        neighbours: neighbours(&pair.subject_runs, &pair.baseline_runs),
        subject: pair.subject,
        baseline: pair.baseline,
        choice: pair.choice,
    }
}

/// Returns the ratio of each neighbour's median speed, if both are known.
fn neighbours(subject: &CellRuns, baseline: &CellRuns) -> BTreeMap<String, f64> {
    let before = baseline.neighbour_speeds();
    let ratio = |(vm, after): (String, f64)| {
        let ratio = after / before.get(&vm)?;
        ratio.is_finite().then_some((vm, ratio))
    };
    subject.neighbour_speeds().into_iter().filter_map(ratio).collect()
}

fn pairs<'a>(info: &ExperimentInfo, cells: &Cells<'a>) -> Vec<Pair<'a>> {
    let mut pairs = against(ComparisonKind::Scheduler, cells, |cell| Cell {
        scheduler: info.baseline_scheduler.clone(),
        ..cell.clone()
    });
    if let Some(topology) = &info.baseline_topology {
        pairs.extend(
            against(ComparisonKind::Topology, cells, |cell| Cell {
                topology: topology.clone(),
                ..cell.clone()
            })
            .into_iter()
            .filter(|pair| pair.subject.scheduler == info.baseline_scheduler),
        );
    }
    pairs.extend(oracles(info, cells));
    if let Some((kernel, boot_params)) = first_kernel(cells) {
        pairs.extend(against(ComparisonKind::Kernel, cells, |cell| Cell {
            kernel: kernel.clone(),
            boot_params: boot_params.clone(),
            ..cell.clone()
        }));
    }
    pairs
}

/// Pairs each cell with its baseline, if that is another cell of the experiment.
fn against<'a>(
    kind: ComparisonKind,
    cells: &Cells<'a>,
    baseline_of: impl Fn(&Cell) -> Cell,
) -> Vec<Pair<'a>> {
    cells
        .iter()
        .filter_map(|(subject, runs)| {
            let baseline = baseline_of(subject);
            let baseline_runs = cells.get(&baseline).filter(|_| baseline != *subject)?.clone();
            let (subject, subject_runs) = (subject.clone(), runs.clone());
            Some(Pair { kind, subject, subject_runs, baseline, baseline_runs, choice: None })
        })
        .collect()
}

/// Pairs the oracle with the baseline scheduler in every place that has one.
fn oracles<'a>(info: &ExperimentInfo, cells: &Cells<'a>) -> Vec<Pair<'a>> {
    cells
        .iter()
        .filter(|(cell, _)| cell.scheduler == info.baseline_scheduler)
        .filter_map(|(baseline, runs)| {
            let found = oracle(baseline, cells)?;
            Some(Pair {
                kind: ComparisonKind::Oracle,
                subject: Cell { scheduler: "oracle".into(), ..baseline.clone() },
                subject_runs: found.runs,
                baseline: baseline.clone(),
                baseline_runs: runs.clone(),
                choice: Some(found.choice),
            })
        })
        .collect()
}

/// Returns the kernel and boot parameters with which others are compared: those of the planned run
/// with the lowest number, in whatever order the runs were carried out. That run belongs to the
/// matrix's first cell.
fn first_kernel(cells: &Cells) -> Option<(String, String)> {
    let records = cells.iter().flat_map(|(_, runs)| runs.observed.iter().chain(&runs.failed));
    let first = &records.min_by_key(|record| record.run)?.cell;
    Some((first.kernel.clone(), first.boot_params.clone()))
}
