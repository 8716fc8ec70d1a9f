//! From run records to the summary of an experiment.
//!
//! Runs are compared by speed: the value of a higher-is-better metric, the reciprocal of a
//! lower-is-better one, and 0 for a run that did not finish, which ranks it below every run that
//! did. Failed runs are not observations; they are counted. `unspin_stats` computes intervals, p
//! and verdicts.

mod cells;
mod checks;
mod compare;
pub mod estimate;
pub(crate) mod oracle;
mod truth;

use std::collections::BTreeMap;

use unspin_model::summary::{ExperimentInfo, Machine};
use unspin_model::{Label, RunRecord, Summary};

use cells::{Cells, cell_summary};

/// Version of the summary's format.
const FORMAT: u32 = 2;

/// Summarises an experiment.
///
/// `planned` is the number of planned runs, `elapsed_s` the seconds spent on measuring. `attempts`
/// are all records, including failed attempts, in any order; of each run, the last attempt counts.
/// The seed of the experiment also seeds the resampling, so the same records give the same summary.
pub fn summarize(
    info: ExperimentInfo,
    machine: Machine,
    planned: u64,
    elapsed_s: f64,
    attempts: &[RunRecord],
) -> Summary {
    let last = last_attempts(attempts);
    let cells = Cells::of(&last);
    let observed: Vec<&RunRecord> =
        last.iter().copied().filter(|record| record.observation().is_some()).collect();
    let seed = info.seed;
    let boots = checks::boots(&observed);
    Summary {
        format: FORMAT,
        machine,
        labels: labels(attempts.iter()),
        planned,
        done: observed.len() as u64,
        elapsed_s,
        cells: cells.iter().filter_map(|(cell, runs)| cell_summary(cell, runs, seed)).collect(),
        comparisons: compare::comparisons(&info, &cells),
        failures: checks::failures(attempts),
        retries: attempts.iter().filter(|record| record.attempt > 1).count() as u64,
        carry_over: checks::carry_over(&cells, seed),
        boot_s: checks::boot_s(&boots, seed),
        boots: boots.into_iter().map(|(topology, of)| (topology, of.len() as u64)).collect(),
        lab_cpu_share: checks::lab_cpu_share(&observed, seed),
        truth: truth::truth(&observed),
        experiment: info,
    }
}

/// Returns the last attempt of each run, in order of the runs' numbers. A result takes precedence
/// over a failure, because a resumed run counts its attempts from 1 again. Of two records of one
/// attempt, the later line counts.
fn last_attempts(attempts: &[RunRecord]) -> Vec<&RunRecord> {
    let mut last: BTreeMap<u64, &RunRecord> = BTreeMap::new();
    for record in attempts {
        let kept = last.entry(record.run).or_insert(record);
        let rank = |one: &RunRecord| (one.observation().is_some(), one.attempt);
        if rank(record) >= rank(kept) {
            *kept = record;
        }
    }
    last.into_values().collect()
}

fn labels<'a>(records: impl Iterator<Item = &'a RunRecord>) -> Vec<Label> {
    let mut labels: Vec<Label> = Vec::new();
    for record in records {
        if !labels.contains(&record.label) {
            labels.push(record.label.clone());
        }
    }
    labels
}

#[cfg(test)]
mod tests;
