//! Checks of the experiment itself: failures, carry-over between runs of one boot, and the lab's
//! own cost.

use std::collections::BTreeMap;

use unspin_model::summary::{CarryOver, Estimate};
use unspin_model::{Accel, FailureKind, Outcome, RunRecord};
use unspin_stats::spearman_test;

use super::cells::{CellRuns, Cells};
use super::estimate::{median_of, of_figures};

/// Returns the number of failed attempts by reason, whether they were retried or not.
pub fn failures(attempts: &[RunRecord]) -> BTreeMap<FailureKind, u64> {
    let mut failures = BTreeMap::new();
    for record in attempts {
        if let Outcome::Failed { kind, .. } = record.outcome {
            *failures.entry(kind).or_default() += 1;
        }
    }
    failures
}

/// Returns, for each workload, whether later runs of a boot are faster or slower. Leaves out a
/// workload without anything to correlate, such as one run a boot.
pub fn carry_over(cells: &Cells, seed: u64) -> Vec<CarryOver> {
    let mut pairs: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for (cell, runs) in cells.iter() {
        pairs.entry(&cell.workload).or_default().extend(positions(runs));
    }
    pairs
        .into_iter()
        .filter_map(|(workload, pairs)| {
            let found = spearman_test(&pairs, seed)?;
            let (workload, n) = (workload.to_string(), pairs.len() as u32);
            Some(CarryOver { workload, rank_correlation: found.rho, p: found.p, n })
        })
        .collect()
}

/// Returns the position in the boot and the logarithm of the speed relative to the cell's median,
/// for each run that finished.
fn positions(runs: &CellRuns) -> Vec<(f64, f64)> {
    let finished: Vec<(f64, f64)> = runs
        .observed
        .iter()
        .filter_map(|r| Some((f64::from(r.position), r.metric.speed(Some(r.observation()??)))))
        .collect();
    let Some(median) = median_of(finished.iter().map(|(_, speed)| *speed)) else {
        return Vec::new();
    };
    let relative = finished.into_iter().map(|(at, speed)| (at, (speed / median).ln()));
    relative.filter(|(_, log)| log.is_finite()).collect()
}

/// Seconds to the first job of each boot, per topology, however many runs a boot had. In virtual
/// time each run has its own, and those that were taken over from another folder have numbers
/// that occur twice.
pub fn boots(observed: &[&RunRecord]) -> BTreeMap<String, Vec<f64>> {
    let mut boots: BTreeMap<&str, BTreeMap<u64, f64>> = BTreeMap::new();
    for record in observed {
        let in_virtual_time = record.label.accel == Some(Accel::Vt);
        let boot = if in_virtual_time { record.run } else { record.boot.into() };
        boots.entry(&record.cell.topology).or_default().insert(boot, record.boot_s);
    }
    let seconds = |of: BTreeMap<u64, f64>| -> Vec<f64> { of.into_values().collect() };
    boots.into_iter().map(|(topology, of)| (topology.to_owned(), seconds(of))).collect()
}

/// The median of each topology's boots.
pub fn boot_s(boots: &BTreeMap<String, Vec<f64>>, seed: u64) -> BTreeMap<String, Estimate> {
    let median = |(topology, seconds): (&String, &Vec<f64>)| {
        Some((topology.clone(), of_figures(seconds, seed)?))
    };
    boots.iter().filter_map(median).collect()
}

/// Returns the lab's own share of a CPU while workloads ran: the median over runs.
pub fn lab_cpu_share(observed: &[&RunRecord], seed: u64) -> Option<Estimate> {
    let shares: Vec<f64> = observed.iter().map(|record| record.lab_cpu_share).collect();
    of_figures(&shares, seed)
}
