//! What an experiment's runs say together: the format of `summary.json`.

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
    /// Upper end of the interval; infinite where resamples did not finish, and
    /// `null` in JSON then.
    #[serde(deserialize_with = "null_is_infinite")]
    pub hi: f64,
}

/// JSON has no infinity: it is written as `null`.
fn null_is_infinite<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::INFINITY))
}

/// The machine and the versions behind an experiment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// CPU model.
    pub cpu: String,
    /// Online CPUs.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Host kernel release.
    pub kernel: String,
    /// Host distribution.
    pub distribution: String,
    /// QEMU's version.
    pub qemu: String,
    /// unspin's version.
    pub unspin: String,
    /// The checkout's commit, with `-dirty` if it had changes; empty when unknown.
    pub commit: String,
}

/// The experiment that was run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentInfo {
    /// Its name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// What it asks, in a paragraph.
    pub about: String,
    /// Planned repeats of each cell.
    pub repeats: u32,
    /// Seed of the order of runs.
    pub seed: u64,
    /// The baseline guest scheduler that others are compared with.
    pub baseline_scheduler: String,
    /// The topology that others are compared with, if any.
    pub baseline_topology: Option<String>,
    /// Workload name to title and a line on what it stresses.
    pub workloads: BTreeMap<String, String>,
    /// Effects smaller than this share of the baseline are not reported as different.
    pub smallest_effect: f64,
}

/// A cell's runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellSummary {
    /// The cell.
    pub cell: Cell,
    /// What its runs are labelled; a run on another machine may have another label.
    #[serde(default)]
    pub labels: Vec<Label>,
    /// What is measured.
    pub metric: Metric,
    /// Runs that count: finished, or did not finish in their limit.
    pub n: u32,
    /// Runs among them that did not finish.
    pub unfinished: u32,
    /// Runs that failed for good.
    pub failed: u32,
    /// The median with its bootstrap interval; `None` where half of the runs or
    /// more did not finish.
    pub median: Option<Estimate>,
    /// Every run by block; `None` did not finish.
    pub values: Vec<(u32, Option<f64>)>,
    /// Medians of the co-metrics.
    pub co_metrics: BTreeMap<String, f64>,
    /// The co-metrics of every run that has them, with its block.
    #[serde(default)]
    pub co_values: BTreeMap<String, Vec<(u32, f64)>>,
    /// The latencies of every run that has them, with its block.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub latencies: BTreeMap<String, Vec<(u32, Lengths)>>,
    /// Median share of vCPU time off, of the time on or off; where known.
    pub off_share: Option<f64>,
    /// Median of KVM's counters per second of the run.
    pub kvm_per_s: BTreeMap<String, f64>,
    /// Each neighbour's median result by VM name.
    pub neighbours: BTreeMap<String, f64>,
    /// Jain's fairness index over the neighbours' and the subject's on-time, where known.
    pub fairness: Option<f64>,
    /// What the guest found out by itself against the truth, all runs together; where it
    /// recorded.
    #[serde(default)]
    pub sensed: Option<SenseCheck>,
    /// The same, run by run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sensed_runs: Vec<SenseCheck>,
}

/// What a comparison says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The subject does more work.
    Better,
    /// The subject does less work.
    Worse,
    /// No difference shown: too small, or not distinguishable from noise.
    NoDifferenceShown,
    /// No difference shown, because so few runs cannot show any in so many comparisons.
    TooFewRuns,
}

/// What kind of comparison it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComparisonKind {
    /// A guest scheduler against the baseline scheduler in the same topology.
    Scheduler,
    /// The baseline scheduler in a topology against the baseline topology.
    Topology,
    /// The oracle against the baseline scheduler in the same topology.
    Oracle,
    /// A kernel or its boot parameters against the first ones.
    Kernel,
}

/// One cell compared with another. Ratios are of speed: above 1 the subject does
/// more work in the same time, whatever the metric's direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What kind it is.
    pub kind: ComparisonKind,
    /// The cell that is judged. An oracle's scheduler reads `oracle`.
    pub subject: Cell,
    /// The cell it is compared with.
    pub baseline: Cell,
    /// Ratio of median speeds; `None` when the baseline did not finish.
    pub ratio: Option<Estimate>,
    /// Whether the subject's median run finished: without a ratio, it is infinite then.
    #[serde(default)]
    pub subject_finished: bool,
    /// p of the permutation test.
    pub p: f64,
    /// p after correction for the experiment's many comparisons (Holm).
    pub p_adjusted: f64,
    /// The verdict.
    pub verdict: Verdict,
    /// Ratio of each neighbour's median, subject against baseline, by VM name.
    pub neighbours: BTreeMap<String, f64>,
    /// For an oracle: the static choice most often best, such as `hold:2`.
    pub choice: Option<String>,
}

/// Whether what ran before in the same boot shows in a run's result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CarryOver {
    /// The workload.
    pub workload: String,
    /// Spearman's rank correlation between the position in the boot and the
    /// speed relative to its cell's median.
    pub rank_correlation: f64,
    /// p of a permutation test of that correlation.
    pub p: f64,
    /// Runs it rests on.
    pub n: u32,
}

/// All of an experiment: the format of `summary.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Version of this format.
    pub format: u32,
    /// The experiment.
    pub experiment: ExperimentInfo,
    /// The machine.
    pub machine: Machine,
    /// Every label found among the runs.
    pub labels: Vec<Label>,
    /// Planned runs and how many of them have a result.
    pub planned: u64,
    /// Runs with a result.
    pub done: u64,
    /// Seconds spent measuring, resumed parts added up.
    pub elapsed_s: f64,
    /// The cells.
    pub cells: Vec<CellSummary>,
    /// The comparisons.
    pub comparisons: Vec<Comparison>,
    /// Attempts that failed, by reason (retried or not).
    pub failures: BTreeMap<FailureKind, u64>,
    /// Attempts beyond a run's first.
    pub retries: u64,
    /// Carry-over check per workload.
    pub carry_over: Vec<CarryOver>,
    /// Median seconds from QEMU's start to the first job, per topology.
    pub boot_s: BTreeMap<String, Estimate>,
    /// Share of one CPU that the lab used while workloads ran: median and interval.
    pub lab_cpu_share: Option<Estimate>,
    /// Injected off intervals, compared with the observed ones, all runs together.
    pub truth: Option<TruthError>,
}

/// How well injected off intervals came back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TruthError {
    /// How many were injected.
    pub injected: u64,
    /// How many were not observed.
    pub missing: u64,
    /// By asked-for length in milliseconds: n, median and largest absolute
    /// error in microseconds, and the share beyond both 5 % and 100 us.
    pub by_length: Vec<TruthErrorAt>,
}

/// Error of the observed length at one injected length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TruthErrorAt {
    /// Asked-for length in milliseconds.
    pub length_ms: f64,
    /// How many.
    pub n: u64,
    /// Median absolute error in microseconds.
    pub median_us: f64,
    /// Largest absolute error in microseconds.
    pub max_us: f64,
    /// Share of them off by more than 5 % and more than 100 us.
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
