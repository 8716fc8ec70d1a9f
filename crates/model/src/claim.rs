//! Claims: every figure that the project states, as data.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One entry of `results/claims.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Its name, such as `lab.loss.rename.2:1`.
    pub id: String,
    /// What it says, in one sentence.
    pub what: String,
    /// The figure; `None` where it is unbounded (the baseline did not finish).
    pub value: Option<f64>,
    /// Lower end of its interval.
    pub lo: Option<f64>,
    /// Upper end of its interval.
    pub hi: Option<f64>,
    /// Runs it rests on.
    pub n: u64,
    /// Its unit; `x` for a ratio.
    pub unit: String,
    /// What it should be, such as `>= 0.95`; empty for a plain observation.
    #[serde(default)]
    pub target: String,
    /// Whether the figure meets its target; true where there is none.
    pub holds: bool,
    /// Why it does not hold.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Where it comes from: lab or sim, accelerator, kernel.
    pub label: String,
    /// The experiment's file.
    pub experiment: String,
    /// What re-measures it from a fresh clone.
    pub command: String,
    /// When it was measured, YYYY-MM-DD.
    pub date: String,
    /// The commit that measured it.
    pub commit: String,
}

/// A target such as `>= 0.95` or `<= 8`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// At least.
    AtLeast(f64),
    /// At most.
    AtMost(f64),
}

impl Target {
    /// Whether a value meets the target.
    pub fn met_by(self, value: f64) -> bool {
        match self {
            Target::AtLeast(bound) => value >= bound,
            Target::AtMost(bound) => value <= bound,
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = |number: &str| {
            number.trim().parse::<f64>().map_err(|e| format!("target `{text}`: {e}"))
        };
        match text.trim() {
            t if t.starts_with(">=") => Ok(Target::AtLeast(parse(&t[2..])?)),
            t if t.starts_with("<=") => Ok(Target::AtMost(parse(&t[2..])?)),
            _ => Err(format!("target `{text}`: write `>= NUMBER` or `<= NUMBER`")),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::AtLeast(bound) => write!(f, ">= {bound}"),
            Target::AtMost(bound) => write!(f, "<= {bound}"),
        }
    }
}

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
    /// What the least would be by chance alone: the cells that speeds are held against, each
    /// against itself, drawn anew.
    SpeedLeastByChance,
    /// How much less of a co-metric (`figure`), or of what the workload measures, each of a
    /// scheduler's cells has than that of `against`, in percent.
    FigureCut,
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
    /// Waits whose cause the guest told right, of those whose cause is known, in percent.
    SenseCauses,
    /// Waits that an off vCPU caused and the guest told otherwise, or the other way round, in
    /// percent of those that it caused.
    SenseMiscounted,
    /// Seconds that waits were kept by an off vCPU as the guest told, against the real ones,
    /// in percent of those.
    SenseKept,
    /// The most memory that an agent beside the workloads had, in megabytes: the largest of the
    /// cells' medians.
    AgentMemory,
    /// Timer interrupts a second that an agent adds to those of the guest under the baseline
    /// scheduler; of workloads that count them, the most.
    AgentTimers,
    /// Stock against stock called different, of random splits, in percent.
    AaFalsePositive,
}

/// A claim that an experiment's summary supports: a `[[claim]]` of its file.
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
    /// What speeds are held against: a scheduler, or `oracle`, the static choice with the
    /// best median of the cell's place; without it, the baseline scheduler.
    pub against: Option<String>,
    /// The topology whose cells speeds are held against; without it, the cell's own.
    pub against_topology: Option<String>,
    /// Only this workload.
    pub workload: Option<String>,
    /// All but this workload: a second figure beside that of all.
    pub without: Option<String>,
    /// The co-metric that is compared (`figure-cut`); without it, what the workload measures.
    pub figure: Option<String>,
    /// Only this class of lengths, its lower bound in milliseconds (`sense-recall`).
    pub length: Option<String>,
    /// What it should be, such as `<= 8`.
    #[serde(default)]
    pub target: String,
    /// Why it does not hold, should it not.
    #[serde(default)]
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_parse_print_and_judge() {
        let target: Target = ">= 0.95".parse().unwrap();
        assert!(target.met_by(0.95) && !target.met_by(0.94));
        assert_eq!(target.to_string(), ">= 0.95");
        let target: Target = "<=8".parse().unwrap();
        assert!(target.met_by(8.0) && !target.met_by(8.1));
        assert!("= 3".parse::<Target>().is_err());
        assert!(">= x".parse::<Target>().is_err());
    }
}
