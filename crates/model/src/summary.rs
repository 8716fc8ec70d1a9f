//! The result of an experiment's runs: the format of `summary.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::{Cell, FailureKind, Label, Lengths, Metric, SenseCheck};

/// A point estimate with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub lo: f64,
    /// Upper end of the interval; infinite if resamples did not finish, and then `null` in JSON.
    #[serde(deserialize_with = "null_is_infinite")]
    pub hi: f64,
}

/// Reads `null` as infinity, which JSON does not have.
fn null_is_infinite<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::INFINITY))
}

/// Machine and versions behind an experiment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the CPU.
    pub cpu: String,
    /// Number of online CPUs.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Release of the host's kernel.
    pub kernel: String,
    /// Distribution of the host.
    pub distribution: String,
    /// Version of QEMU.
    pub qemu: String,
    /// Version of unspin.
    pub unspin: String,
    /// Commit of the checkout, with `-dirty` if it had changes; empty if unknown.
    pub commit: String,
}

/// The experiment that was run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentInfo {
    /// Name of the experiment.
    pub name: String,
    /// Title of the experiment.
    pub title: String,
    /// Question of the experiment, in a paragraph.
    pub about: String,
    /// Planned number of repeats of each cell.
    pub repeats: u32,
    /// Seed of the order of runs.
    pub seed: u64,
    /// Baseline guest scheduler, with which others are compared.
    pub baseline_scheduler: String,
    /// Topology with which others are compared, if any.
    pub baseline_topology: Option<String>,
    /// For each workload by name, its title and a line on what it stresses.
    pub workloads: BTreeMap<String, String>,
    /// Smallest effect, as a share of the baseline, that is reported as a difference.
    pub smallest_effect: f64,
}

/// Results of a cell's runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellSummary {
    /// The cell.
    pub cell: Cell,
    /// Labels of the runs; a run on another machine may have another label.
    #[serde(default)]
    pub labels: Vec<Label>,
    /// Metric of the workload.
    pub metric: Metric,
    /// Number of runs that count: they finished, or did not finish in their limit.
    pub n: u32,
    /// Number of these runs that did not finish.
    pub unfinished: u32,
    /// Number of runs that failed for good.
    pub failed: u32,
    /// Median with its bootstrap interval; `None` if at least half of the runs did not finish.
    pub median: Option<Estimate>,
    /// Value of every run by block; `None` if it did not finish.
    pub values: Vec<(u32, Option<f64>)>,
    /// Medians of the co-metrics.
    pub co_metrics: BTreeMap<String, f64>,
    /// Co-metrics of every run that has them, with its block.
    #[serde(default)]
    pub co_values: BTreeMap<String, Vec<(u32, f64)>>,
    /// Latencies of every run that has them, with its block.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub latencies: BTreeMap<String, Vec<(u32, Lengths)>>,
    /// Median share of off time in the vCPU time that is on or off, if known.
    pub off_share: Option<f64>,
    /// Median of KVM's counters per second that the workload ran. In real time they include the
    /// set-up, so they are too high where that takes long.
    pub kvm_per_s: BTreeMap<String, f64>,
    /// Median result of each neighbour, by VM name.
    pub neighbours: BTreeMap<String, f64>,
    /// Jain's fairness index over the on-time of the neighbours and the subject, if known.
    pub fairness: Option<f64>,
    /// The guest's own findings, compared with the truth, all runs together; only if the guest
    /// recorded.
    #[serde(default)]
    pub sensed: Option<SenseCheck>,
    /// The same comparison, run by run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sensed_runs: Vec<SenseCheck>,
}

/// Result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The subject does more work.
    Better,
    /// The subject does less work.
    Worse,
    /// No difference is shown: it is too small, or not distinguishable from noise.
    NoDifferenceShown,
    /// No difference is shown, because so few runs cannot show any in so many comparisons.
    TooFewRuns,
}

/// Kind of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComparisonKind {
    /// A guest scheduler, compared with the baseline scheduler in the same topology.
    Scheduler,
    /// The baseline scheduler in a topology, compared with the baseline topology.
    Topology,
    /// The oracle, compared with the baseline scheduler in the same topology.
    Oracle,
    /// A kernel or its boot parameters, compared with the first ones.
    Kernel,
}

/// One cell compared with another. Ratios are of speed: above 1, the subject does more work in the
/// same time, whatever the metric's direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Kind of the comparison.
    pub kind: ComparisonKind,
    /// Cell that is judged. The scheduler of an oracle is `oracle`.
    pub subject: Cell,
    /// Cell that the subject is compared with.
    pub baseline: Cell,
    /// Ratio of median speeds; `None` if the baseline did not finish.
    pub ratio: Option<Estimate>,
    /// Whether the subject's median run finished. Without a ratio, the subject is then infinitely
    /// faster.
    #[serde(default)]
    pub subject_finished: bool,
    /// p of the permutation test.
    pub p: f64,
    /// p after correction for the experiment's many comparisons (Holm).
    pub p_adjusted: f64,
    /// The verdict.
    pub verdict: Verdict,
    /// Ratio of each neighbour's median, subject to baseline, by VM name.
    pub neighbours: BTreeMap<String, f64>,
    /// For an oracle, the static choice that was best most often, such as `hold:2`.
    pub choice: Option<String>,
}

/// Effect of earlier runs in the same boot on the results of a workload's runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CarryOver {
    /// Name of the workload.
    pub workload: String,
    /// Spearman's rank correlation between the position in the boot and the speed relative to the
    /// median of its cell.
    pub rank_correlation: f64,
    /// p of a permutation test of that correlation.
    pub p: f64,
    /// Number of runs behind the correlation.
    pub n: u32,
}

/// Results of an experiment: the format of `summary.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Version of this format.
    pub format: u32,
    /// The experiment.
    pub experiment: ExperimentInfo,
    /// The machine.
    pub machine: Machine,
    /// All labels of the runs.
    pub labels: Vec<Label>,
    /// Number of planned runs.
    pub planned: u64,
    /// Number of runs with a result.
    pub done: u64,
    /// Seconds spent measuring, including those before a resume.
    pub elapsed_s: f64,
    /// The cells.
    pub cells: Vec<CellSummary>,
    /// The comparisons.
    pub comparisons: Vec<Comparison>,
    /// Number of failed attempts by reason, retried or not.
    pub failures: BTreeMap<FailureKind, u64>,
    /// Number of attempts beyond a run's first.
    pub retries: u64,
    /// Carry-over check of each workload.
    pub carry_over: Vec<CarryOver>,
    /// Median seconds from QEMU's start to the first job, by topology.
    pub boot_s: BTreeMap<String, Estimate>,
    /// How many boots each of these medians is of.
    #[serde(default)]
    pub boots: BTreeMap<String, u64>,
    /// Share of one CPU that the lab used, the set-up included: median and interval.
    pub lab_cpu_share: Option<Estimate>,
    /// Injected off intervals, compared with the observed ones, all runs together.
    pub truth: Option<TruthError>,
}

/// Error of the observed off intervals relative to the injected ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TruthError {
    /// Number of injected intervals.
    pub injected: u64,
    /// Number of intervals that were not observed.
    pub missing: u64,
    /// Errors by requested length.
    pub by_length: Vec<TruthErrorAt>,
}

/// Error of the observed length at one injected length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TruthErrorAt {
    /// Requested length in milliseconds.
    pub length_ms: f64,
    /// Number of intervals.
    pub n: u64,
    /// Median absolute error in microseconds.
    pub median_us: f64,
    /// Largest absolute error in microseconds.
    pub max_us: f64,
    /// Share of intervals with an error above both 5 % and 100 us.
    pub beyond: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unbounded_interval_survives_json() {
        let unbounded = Estimate { value: 2.0, lo: 1.0, hi: f64::INFINITY };
        let text = serde_json::to_string(&unbounded).unwrap();
        assert_eq!(text, r#"{"value":2.0,"lo":1.0,"hi":null}"#);
        assert_eq!(serde_json::from_str::<Estimate>(&text).unwrap(), unbounded);
        assert!(serde_json::from_str::<Estimate>(r#"{"value":2.0,"lo":null,"hi":3}"#).is_err());
    }
}
