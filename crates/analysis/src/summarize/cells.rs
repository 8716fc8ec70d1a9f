//! The runs of each cell, and the summary of each cell alone.

use std::collections::{BTreeMap, BTreeSet};

use unspin_model::summary::{CellSummary, Estimate};
use unspin_model::{Cell, Lengths, NeighbourResult, RunRecord, SenseCheck};
use unspin_stats::{Bootstrap, Run, jain, median_speed};

use super::estimate::{median_of, of_values};
use super::labels;

/// The runs of one cell.
#[derive(Debug, Clone, Default)]
pub struct CellRuns<'a> {
    /// Runs with an observation, in order of their blocks.
    pub observed: Vec<&'a RunRecord>,
    /// Runs that failed for good.
    pub failed: Vec<&'a RunRecord>,
}

/// Every cell with its runs.
pub struct Cells<'a>(BTreeMap<&'a Cell, CellRuns<'a>>);

impl<'a> Cells<'a> {
    /// Groups the last attempts by cell.
    pub fn of(last: &[&'a RunRecord]) -> Self {
        let mut cells: BTreeMap<&Cell, CellRuns> = BTreeMap::new();
        for &record in last {
            let runs = cells.entry(&record.cell).or_default();
            match record.observation() {
                Some(_) => runs.observed.push(record),
                None => runs.failed.push(record),
            }
        }
        for runs in cells.values_mut() {
            runs.observed.sort_by_key(|record| (record.block, record.run));
        }
        Cells(cells)
    }

    /// Returns the cells in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a Cell, &CellRuns<'a>)> {
        self.0.iter().map(|(cell, runs)| (*cell, runs))
    }

    /// Returns the runs of a cell, if it has any.
    pub fn get(&self, cell: &Cell) -> Option<&CellRuns<'a>> {
        self.0.get(cell)
    }
}

impl CellRuns<'_> {
    /// Returns the speed of each observed run, 0 for those that did not finish.
    pub fn speeds(&self) -> Vec<Run> {
        let speed = |record: &&RunRecord| {
            let speed = record.metric.speed(record.observation()?);
            Some(Run { block: record.block, speed })
        };
        self.observed.iter().filter_map(speed).collect()
    }

    fn unfinished(&self) -> usize {
        self.observed.iter().filter(|record| record.observation() == Some(None)).count()
    }

    /// Returns the median with its interval; `None` if at least half of the runs did not finish.
    fn median(&self, seed: u64) -> Option<Estimate> {
        if 2 * self.unfinished() >= self.observed.len() {
            return None;
        }
        let speeds: Vec<f64> = self.speeds().iter().map(|run| run.speed).collect();
        let metric = &self.observed.first()?.metric;
        of_values(metric, Bootstrap::seeded(seed).median(&speeds)?, speeds.len())
    }

    /// Returns each neighbour's figure by VM name: the median of what `figure` reads.
    fn of_neighbours(
        &self,
        figure: impl Fn(&NeighbourResult) -> Option<f64>,
    ) -> BTreeMap<String, Vec<f64>> {
        let mut by_vm: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for neighbour in self.observed.iter().flat_map(|record| &record.neighbours) {
            if let Some(figure) = figure(neighbour) {
                by_vm.entry(neighbour.vm.clone()).or_default().push(figure);
            }
        }
        by_vm
    }

    /// Returns each neighbour's median speed by VM name, without values that could not be read.
    pub fn neighbour_speeds(&self) -> BTreeMap<String, f64> {
        let speeds = self.of_neighbours(|n| n.value.map(|value| n.metric.speed(Some(value))));
        speeds.into_iter().filter_map(|(vm, all)| Some((vm, median_speed(&all)?))).collect()
    }

    fn neighbour_values(&self) -> BTreeMap<String, f64> {
        let values = self.of_neighbours(|neighbour| neighbour.value);
        values.into_iter().filter_map(|(vm, all)| Some((vm, median_of(all.into_iter())?))).collect()
    }
}

/// Returns the summary of a cell's runs; `None` if it has none.
pub fn cell_summary(cell: &Cell, runs: &CellRuns, seed: u64) -> Option<CellSummary> {
    let co_values = co_values(&runs.observed);
    let sensed = runs.observed.iter().filter_map(|r| r.truth.as_ref()?.sensed.clone());
    let sensed_runs: Vec<SenseCheck> = sensed.collect();
    Some(CellSummary {
        cell: cell.clone(),
        labels: labels(runs.observed.iter().chain(&runs.failed).copied()),
        metric: runs.observed.iter().chain(&runs.failed).next()?.metric.clone(),
        n: runs.observed.len() as u32,
        unfinished: runs.unfinished() as u32,
        failed: runs.failed.len() as u32,
        median: runs.median(seed),
        values: runs.observed.iter().filter_map(|r| Some((r.block, r.observation()?))).collect(),
        co_metrics: medians(&co_values),
        co_values,
        latencies: latencies(&runs.observed),
        off_share: median_of(runs.observed.iter().filter_map(|record| off_share(record))),
        kvm_per_s: kvm_per_s(&runs.observed),
        neighbours: runs.neighbour_values(),
        fairness: median_of(runs.observed.iter().filter_map(|record| fairness(record))),
        sensed: SenseCheck::all(&sensed_runs),
        sensed_runs,
    })
}

/// Returns Jain's index over the on-time of the run's VMs; `None` for a VM alone.
fn fairness(record: &RunRecord) -> Option<f64> {
    let subject = record.truth.as_ref()?.on_s;
    let neighbours = record.neighbours.iter().map(|neighbour| neighbour.on_s);
    let all: Vec<f64> = [Some(subject)].into_iter().chain(neighbours).collect::<Option<_>>()?;
    if all.len() < 2 { None } else { jain(&all) }
}

/// Figures by name, each with its block.
type CoValues = BTreeMap<String, Vec<(u32, f64)>>;

fn co_values(records: &[&RunRecord]) -> CoValues {
    let mut values = CoValues::new();
    for record in records {
        for (name, value) in &record.co_metrics {
            values.entry(name.clone()).or_default().push((record.block, *value));
        }
    }
    values
}

fn latencies(records: &[&RunRecord]) -> BTreeMap<String, Vec<(u32, Lengths)>> {
    let mut all: BTreeMap<String, Vec<(u32, Lengths)>> = BTreeMap::new();
    for record in records {
        for (name, lengths) in &record.latencies {
            all.entry(name.clone()).or_default().push((record.block, lengths.clone()));
        }
    }
    all
}

fn medians(values: &CoValues) -> BTreeMap<String, f64> {
    let median = |(name, all): (&String, &Vec<(u32, f64)>)| {
        Some((name.clone(), median_of(all.iter().map(|(_, value)| *value))?))
    };
    values.iter().filter_map(median).collect()
}

/// Returns the off share of the time for which vCPUs wanted to run.
fn off_share(record: &RunRecord) -> Option<f64> {
    let truth = record.truth.as_ref()?;
    let wanted_s = truth.on_s + truth.off_s;
    (wanted_s > 0.0).then(|| truth.off_s / wanted_s)
}

/// Returns medians of counts per second over the runs whose KVM could be read. A counter that is
/// missing from one of them was 0 there: KVM lists an exit reason from its first exit on.
fn kvm_per_s(records: &[&RunRecord]) -> BTreeMap<String, f64> {
    let asked: Vec<_> = records.iter().filter(|r| !r.kvm.is_empty() && r.elapsed_s > 0.0).collect();
    let names: BTreeSet<&String> = asked.iter().flat_map(|r| r.kvm.keys()).collect();
    let per_s = |r: &RunRecord, name| r.kvm.get(name).copied().unwrap_or(0) as f64 / r.elapsed_s;
    names
        .into_iter()
        .filter_map(|name| Some((name.clone(), median_of(asked.iter().map(|r| per_s(r, name)))?)))
        .collect()
}
