//! The claims that an experiment's summary supports.

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
    /// Seconds from QEMU's start to the first job.
    BootS,
    /// Seconds that the experiment took.
    ElapsedS,
    /// Share of one CPU that the lab used while workloads ran, in percent.
    LabCpu,
    /// Largest error of an injected off interval's observed length, microseconds.
    TruthErrorUs,
    /// Runs that ended, of those that should, in percent.
    FinishedShare,
    /// Stock against stock called different, of random splits, in percent.
    AaFalsePositive,
}

/// A claim to be read out of a summary.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimSpec {
    /// Its id; `{workload}`, `{topology}` and `{scheduler}` are replaced, one claim each.
    pub id: String,
    /// What it says; the same replacements.
    pub what: String,
    /// Where the figure comes from.
    pub from: ClaimSource,
    /// Only this topology.
    pub topology: Option<String>,
    /// Only this scheduler.
    pub scheduler: Option<String>,
    /// What it should be, such as `<= 8`.
    #[serde(default)]
    pub target: String,
    /// Why it does not hold, should it not.
    #[serde(default)]
    pub reason: String,
}
