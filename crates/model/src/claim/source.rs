//! Sources of the figures of claims.

use serde::Deserialize;

/// Source of a claim's figure in the summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimSource {
    /// Work lost relative to the baseline topology, in percent.
    TopologyLoss,
    /// Ratio of speed to that of the baseline topology.
    TopologyRatio,
    /// Ratio of the oracle's speed to that of the baseline scheduler.
    OracleRatio,
    /// Ratio of a scheduler's speed to that of the baseline scheduler.
    SchedulerRatio,
    /// Ratio of the speed of each of a scheduler's cells to that of `against`.
    SpeedRatio,
    /// Geometric mean, over the cells of a scheduler, of the ratio of speed to that of `against`.
    SpeedGeomean,
    /// The smallest of these ratios.
    SpeedLeast,
    /// The smallest ratio by chance alone: each cell with which speeds are compared, compared with
    /// itself in other resampled blocks.
    SpeedLeastByChance,
    /// By how much a co-metric (`figure`), or else the workload's metric, is less in each of a
    /// scheduler's cells than in that of `against`, in percent.
    FigureCut,
    /// Median of a co-metric (`figure`) in each cell, in the unit that its name ends in.
    FigureMedian,
    /// Share of the runs of all cells in which a co-metric (`figure`) is 1 and not 0, in percent.
    FigureShare,
    /// p50, p90 and p99 of a latency (`figure`) in each cell, all of its runs together.
    LatencyQuantile,
    /// Ratios of these quantiles to those in the cell of `against_topology`.
    LatencyRatio,
    /// The ratio of p99 divided by that of p50. If it is above 1, less of a gain remains in the
    /// tail.
    LatencyTail,
    /// Standard deviation of the runs of each cell, in percent of their mean.
    Spread,
    /// Seconds from QEMU's start to the first job.
    BootS,
    /// Seconds that the experiment took.
    ElapsedS,
    /// Share of one CPU that the lab used while workloads ran, in percent.
    LabCpu,
    /// Error of an injected off interval's observed length in microseconds: the median, and the
    /// largest as the interval's upper end.
    TruthErrorUs,
    /// Share of injected off intervals that were missed, or have an error above both 5 % and
    /// 100 us, in percent.
    TruthBeyond,
    /// Share of the started runs that have a result, in percent.
    FinishedShare,
    /// Share of the true off intervals that the guest found by itself, in percent; one figure for
    /// each class of lengths (`{length}`, milliseconds).
    SenseRecall,
    /// Share of the off intervals found by the guest that are true, in percent.
    SensePrecision,
    /// Share of answers "it is off" about vCPUs that had been off for 1 ms or more, in percent.
    SenseRemote,
    /// Share of the waits with a known cause for which the guest reported that cause, in percent.
    SenseCauses,
    /// Number of waits whose reported cause is wrong about whether a vCPU was off, in percent of
    /// the waits that an off vCPU caused.
    SenseMiscounted,
    /// Seconds of waiting for an off vCPU that the guest reported, in percent of the true ones.
    SenseKept,
    /// The most memory that an agent used next to the workloads in any run, in megabytes.
    AgentMemory,
    /// Timer interrupts per second that an agent adds to those of the guest under the baseline
    /// scheduler; the most over the workloads that count them.
    AgentTimers,
    /// Share of random splits in which stock is called different from stock, in percent.
    AaFalsePositive,
}

impl ClaimSource {
    /// Returns the fields of a spec, apart from those that every claim has, that choose the
    /// figures.
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

    /// Returns whether the figures are those of a scheduler that the spec must name.
    pub(super) fn needs_scheduler(self) -> bool {
        use ClaimSource::*;
        matches!(
            self,
            SpeedRatio | SpeedGeomean | SpeedLeast | SpeedLeastByChance | FigureCut | AgentTimers
        )
    }

    /// Returns whether the figures are those of a co-metric or a latency that the spec must name.
    pub(super) fn needs_figure(self) -> bool {
        use ClaimSource::*;
        matches!(self, FigureMedian | FigureShare | LatencyQuantile | LatencyRatio | LatencyTail)
    }

    /// Returns whether the spec must name the topology with which its figures are compared.
    pub(super) fn needs_other_topology(self) -> bool {
        matches!(self, ClaimSource::LatencyRatio | ClaimSource::LatencyTail)
    }

    /// Returns the placeholders that an id may have: one claim for each of these.
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
