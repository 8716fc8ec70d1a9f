//! Where the figures of claims come from.

use serde::Deserialize;

/// Where a claim's figure comes from in the summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimSource {
    /// Work lost against the baseline topology, in percent.
    TopologyLoss,
    /// Speed as a ratio to the baseline topology's.
    TopologyRatio,
    /// Speed of the oracle as a ratio to the baseline scheduler's.
    OracleRatio,
    /// Speed of a scheduler as a ratio to the baseline scheduler's.
    SchedulerRatio,
    /// Speed of each of a scheduler's cells as a ratio to that of `against`.
    SpeedRatio,
    /// Geometric mean over the cells of a scheduler's speed as a ratio to that of `against`.
    SpeedGeomean,
    /// The least of these ratios.
    SpeedLeast,
    /// What the least would be by chance alone: the cells that speeds are compared with, each
    /// compared with itself in other resampled blocks.
    SpeedLeastByChance,
    /// How much less of a co-metric (`figure`), or of what the workload measures, each of a
    /// scheduler's cells has than that of `against`, in percent.
    FigureCut,
    /// The median of a co-metric (`figure`) in each cell, in the unit that its name ends in.
    FigureMedian,
    /// Runs of all cells in which a co-metric (`figure`) is 1 and not 0, in percent.
    FigureShare,
    /// p50, p90 and p99 of a latency (`figure`) in each cell, all of its runs together.
    LatencyQuantile,
    /// The same as a ratio to those in the cell of `against_topology`.
    LatencyRatio,
    /// The ratio of p99 divided by that of p50: above 1, less of a gain is left in the tail.
    LatencyTail,
    /// Standard deviation of each cell's runs, in percent of their mean.
    Spread,
    /// Seconds from QEMU's start to the first job.
    BootS,
    /// Seconds that the experiment took.
    ElapsedS,
    /// Share of one CPU that the lab used while workloads ran, in percent.
    LabCpu,
    /// Error of an injected off interval's observed length in microseconds:
    /// the median, and as the interval's upper end the largest.
    TruthErrorUs,
    /// Injected off intervals that were missed or are off by more than 5 % and
    /// more than 100 us, in percent.
    TruthBeyond,
    /// Runs that have a result, of those that were started, in percent.
    FinishedShare,
    /// Off intervals that the guest found by itself, of those that were, in percent; one
    /// figure for each class of lengths (`{length}`, milliseconds).
    SenseRecall,
    /// Off intervals that really were, of those that the guest found, in percent.
    SensePrecision,
    /// Answers "it is off" about vCPUs that had been off for 1 ms or more, in percent.
    SenseRemote,
    /// Waits whose cause the guest reported right, of those whose cause is known, in percent.
    SenseCauses,
    /// Waits whose reported cause is wrong about whether a vCPU was off, in percent of those
    /// that an off vCPU caused.
    SenseMiscounted,
    /// Seconds of waiting for an off vCPU that the guest reported, in percent of the real
    /// ones.
    SenseKept,
    /// The most memory that an agent beside the workloads had in any run, in megabytes.
    AgentMemory,
    /// Timer interrupts a second that an agent adds to those of the guest under the baseline
    /// scheduler; of workloads that count them, the most.
    AgentTimers,
    /// Stock against stock called different, of random splits, in percent.
    AaFalsePositive,
}

impl ClaimSource {
    /// The fields of a spec, beside those that every claim has, that choose the figures.
    pub(super) fn fields(self) -> &'static [&'static str] {
        use ClaimSource::*;
        match self {
            SchedulerRatio => &["topology", "scheduler"],
            SpeedRatio | SpeedGeomean | SpeedLeast | SpeedLeastByChance => {
                &["topology", "scheduler", "against", "against_topology", "workload", "without"]
            }
            FigureCut => &[
                "topology",
                "scheduler",
                "against",
                "against_topology",
                "workload",
                "without",
                "figure",
            ],
            FigureMedian | FigureShare | LatencyQuantile => {
                &["topology", "scheduler", "workload", "figure"]
            }
            LatencyRatio | LatencyTail => {
                &["topology", "scheduler", "against_topology", "workload", "figure"]
            }
            Spread => &["topology", "scheduler", "workload"],
            TopologyLoss | TopologyRatio | OracleRatio | BootS | FinishedShare => &["topology"],
            SenseRecall => &["topology", "scheduler", "length"],
            SensePrecision | SenseRemote | SenseCauses | SenseMiscounted | SenseKept => {
                &["topology", "scheduler"]
            }
            AgentMemory | AgentTimers => &["scheduler"],
            ElapsedS | LabCpu | TruthErrorUs | TruthBeyond | AaFalsePositive => &[],
        }
    }

    /// Whether the figures are those of a scheduler that the spec must name.
    pub(super) fn needs_scheduler(self) -> bool {
        use ClaimSource::*;
        matches!(
            self,
            SpeedRatio | SpeedGeomean | SpeedLeast | SpeedLeastByChance | FigureCut | AgentTimers
        )
    }

    /// Whether the figures are those of a co-metric or a latency that the spec must name.
    pub(super) fn needs_figure(self) -> bool {
        use ClaimSource::*;
        matches!(self, FigureMedian | FigureShare | LatencyQuantile | LatencyRatio | LatencyTail)
    }

    /// Whether the spec must name the topology that its figures are compared with.
    pub(super) fn needs_other_topology(self) -> bool {
        matches!(self, ClaimSource::LatencyRatio | ClaimSource::LatencyTail)
    }

    /// What an id may hold: one claim for each of these.
    pub(super) fn placeholders(self) -> &'static [&'static str] {
        use ClaimSource::*;
        match self {
            TopologyLoss | TopologyRatio | OracleRatio | SchedulerRatio | SpeedRatio
            | FigureCut | FigureMedian | LatencyTail | Spread => {
                &["{workload}", "{topology}", "{scheduler}"]
            }
            LatencyQuantile | LatencyRatio => {
                &["{workload}", "{topology}", "{scheduler}", "{quantile}"]
            }
            BootS => &["{topology}"],
            SenseRecall => &["{length}"],
            _ => &[],
        }
    }
}
