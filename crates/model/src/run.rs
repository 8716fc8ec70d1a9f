//! One run of one cell: a line of `runs.jsonl`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Cell, Identity, Label, Metric, SenseCheck};

/// Reason for which a run produced no result although it should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The guest did not come up within its time limit.
    BootTimeout,
    /// The guest's kernel panicked.
    GuestPanic,
    /// The kernel's `int3` oops of live-patched code under software emulation, a known flake of
    /// QEMU's TCG with kernels that have CONFIG_JUMP_LABEL.
    Int3Oops,
    /// The guest stopped answering although no workload kept it busy.
    GuestHang,
    /// QEMU ended or was killed.
    QemuDied,
    /// The guest or the host ran out of memory.
    OutOfMemory,
    /// The workload's program failed.
    WorkloadFailed,
    /// The workload ended, but its output held no result.
    NoResult,
    /// The guest scheduler's command failed.
    SchedulerFailed,
    /// The host lacks something that the topology needs, such as a cgroup controller or a pCPU.
    Unavailable,
    /// The guest sent something other than a message of this version.
    BadReply,
    /// A run in virtual time did not end within its limit of real time.
    TooSlow,
    /// The virtual-time host broke one of its own invariants.
    InvariantBroken,
    /// The user interrupted the run; it has no record and runs again on resume.
    Interrupted,
}

/// End of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// The run ended, and the lab parsed its result.
    Done {
        /// Value of the metric.
        value: f64,
    },
    /// The run did not end within its time limit: a result, ranked as the worst.
    DidNotFinish {
        /// Time limit in seconds.
        limit_s: f64,
    },
    /// The run produced no result. The lab retries it if that is known to help.
    Failed {
        /// Kind of the failure.
        kind: FailureKind,
        /// Reason in words, with the last lines of the console.
        detail: String,
    },
}

/// Co-metric: the most memory that the agent used during a workload, in megabytes.
pub const AGENT_MEMORY: &str = "agent_memory_mb";

/// Co-metric of a workload that counts a guest's timer interrupts, per second.
pub const TIMER_INTERRUPTS: &str = "timer_interrupts_per_s";

/// Co-metric: number of a guest's pause-loop exits.
pub const PAUSE_EXITS: &str = "pause_exits";

/// Co-metric: number of the pause-loop exits that belong to a storm, which is more than a hundred
/// exits of one vCPU in a row.
pub const STORM_EXITS: &str = "storm_exits";

/// Co-metric: number of preemptions of a guest's vCPUs.
pub const PREEMPTIONS: &str = "preemptions";

/// Co-metric: share of these preemptions that hit a critical section, as the guest reports, in
/// percent.
pub const CRITICAL_SHARE: &str = "critical_preemption_percent";

/// Co-metric: number of pause loops that the host returned to a guest, which answers them.
pub const REFLECTIONS: &str = "reflections";

/// Co-metric: share of a guest's answers that name a vCPU, in percent.
pub const NAMED_SHARE: &str = "answers_that_name_percent";

/// Co-metric: share of a guest's answers at which the host yielded to a vCPU that the answer named,
/// in percent.
pub const YIELDED_SHARE: &str = "answers_yielded_percent";

/// Co-metric: share of its time that each vCPU of the neighbours was on, in percent; only if all of
/// them always compute.
pub const CO_RUNNER_SHARE: &str = "co_runner_percent";

/// Latency from the instant at which a vCPU wants to run until it is on a pCPU, in microseconds.
pub const READY_TO_ON: &str = "ready_to_on_us";

/// Lengths of a latency, the shortest first, each with how often it occurred.
pub type Lengths = Vec<(f64, u64)>;

/// Result of a neighbour during the subject's run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NeighbourResult {
    /// Name of the neighbour VM.
    pub vm: String,
    /// Name of its workload.
    pub workload: String,
    /// Metric of its workload.
    pub metric: Metric,
    /// Measured value; `None` if it could not be read.
    pub value: Option<f64>,
    /// vCPU-seconds that it was on a pCPU while the subject ran, in real time its set-up
    /// included; where known.
    #[serde(default)]
    pub on_s: Option<f64>,
}

/// The ground truth of a run in figures, summed over the VM's vCPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TruthSummary {
    /// Method of observation: `sched_switch`, `schedstat` or `virtual time`.
    pub method: String,
    /// Length of the window in seconds: the job's, and with `schedstat` that of its set-up, too.
    pub window_s: f64,
    /// vCPU-seconds on a pCPU.
    pub on_s: f64,
    /// vCPU-seconds of wanting to run without a pCPU.
    pub off_s: f64,
    /// vCPU-seconds halted.
    pub idle_s: f64,
    /// Number of off intervals.
    pub off_count: u64,
    /// Median, 99th percentile and maximum of the off intervals in microseconds; absent if only
    /// totals are known.
    pub off_us: Option<[f64; 3]>,
    /// Bound on the error of host time expressed in guest time, in microseconds.
    pub alignment_error_us: Option<f64>,
    /// Number of events that the host's ring buffer lost.
    pub lost: u64,
    /// Name of the recording next to `runs.jsonl`, if one was kept.
    pub recording: Option<String>,
    /// Injected off intervals, compared with the observed ones, if an injector ran.
    pub injected: Option<InjectionCheck>,
    /// The guest's own findings, compared with this truth, if the guest recorded.
    #[serde(default)]
    pub sensed: Option<SenseCheck>,
}

/// Injected off intervals, compared with the observed ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InjectionCheck {
    /// Number of injected off intervals.
    pub injected: u64,
    /// Number of them that were not observed.
    pub missing: u64,
    /// Number of them whose vCPU was not on when they began (halted, or off already). Their length
    /// is not that of an off interval.
    #[serde(default)]
    pub not_on: u64,
    /// Number of them that another thread of the host prolonged by running on the pCPU between the
    /// injector and the vCPU. The off interval really was longer.
    #[serde(default)]
    pub prolonged: u64,
    /// Lengths in microseconds of each remaining interval: requested, true (as the injector itself
    /// measured it), and observed.
    pub pairs_us: Vec<[f64; 3]>,
}

/// One run of one cell: the format of a line of `runs.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Number of the planned run in the matrix that it was made for.
    pub run: u64,
    /// Number of the repeat (block). Every cell runs once in a block.
    pub block: u32,
    /// Number of the subject's boot; boots are numbered as they start.
    pub boot: u32,
    /// Position within that boot, from 0.
    pub position: u32,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// The cell.
    pub cell: Cell,
    /// Metric of the cell's workload.
    pub metric: Metric,
    /// End of the run.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Further figures of the workload's output, by name (the name ends in the unit).
    #[serde(default)]
    pub co_metrics: BTreeMap<String, f64>,
    /// Latencies by name (the name ends in the unit), if they were kept.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub latencies: BTreeMap<String, Lengths>,
    /// Results of the neighbours during the run.
    #[serde(default)]
    pub neighbours: Vec<NeighbourResult>,
    /// Ground truth of the subject.
    #[serde(default)]
    pub truth: Option<TruthSummary>,
    /// KVM's counters during the run, in real time its set-up included, where the host's KVM
    /// could be asked: debugfs counters by their name, exit reasons as `exit:<reason>`.
    #[serde(default)]
    pub kvm: BTreeMap<String, u64>,
    /// Seconds for which the workload ran.
    pub elapsed_s: f64,
    /// Seconds from QEMU's start to the first accepted job of this boot.
    pub boot_s: f64,
    /// CPU seconds that the lab itself used from the request to the guest's answer, the set-up
    /// included, for each second that the workload ran.
    pub lab_cpu_share: f64,
    /// Kind of spinlock that the guest's kernel reports, such as `native qspinlock`.
    #[serde(default)]
    pub spinlock: String,
    /// SHA-256 of the output of guest and host in virtual time: the same on every machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Start of the run, RFC 3339 in UTC.
    pub started: String,
    /// Origin of the figure.
    pub label: Label,
    /// Identity of the run; absent from runs recorded before identities existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Key of the entry in `identities.json` that gives the identity's ingredients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<Identity>,
}

impl RunRecord {
    /// Returns the value of a run that ended, `Some(None)` for one that did not finish, and `None`
    /// for a failed one, which does not count as an observation.
    pub fn observation(&self) -> Option<Option<f64>> {
        match self.outcome {
            Outcome::Done { value } => Some(Some(value)),
            Outcome::DidNotFinish { .. } => Some(None),
            Outcome::Failed { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_is_flat_in_json() {
        let line = serde_json::to_value(Outcome::DidNotFinish { limit_s: 90.0 }).unwrap();
        assert_eq!(line, serde_json::json!({"outcome": "did-not-finish", "limit_s": 90.0}));
    }
}
