//! One run of one cell: a line of `runs.jsonl`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Cell, Identity, Label, Metric, SenseCheck};

/// Why a run produced no result although it should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The guest did not come up within its time limit.
    BootTimeout,
    /// The guest's kernel panicked.
    GuestPanic,
    /// The `int3` oops of live-patched code under software emulation, a known
    /// flake of QEMU's TCG with kernels that have CONFIG_JUMP_LABEL.
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
    /// The host lacks what the topology asks for, such as a cgroup controller or a pCPU.
    Unavailable,
    /// The guest sent something other than a message of this version.
    BadReply,
    /// The virtual-time host broke one of its own invariants.
    InvariantBroken,
    /// The user interrupted the run; it has no record and runs again on resume.
    Interrupted,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// It ended and was read.
    Done {
        /// The metric's value.
        value: f64,
    },
    /// It did not end within its time limit: a result, ranked as the worst.
    DidNotFinish {
        /// The limit in seconds.
        limit_s: f64,
    },
    /// It produced no result; retried where that is known to help.
    Failed {
        /// What failed.
        kind: FailureKind,
        /// The reason in words, with what the console said last.
        detail: String,
    },
}

/// The co-metric that says how much memory the agent beside a workload had at most, in
/// megabytes.
pub const AGENT_MEMORY: &str = "agent_memory_mb";

/// The co-metric of a workload that counts a guest's timer interrupts, a second.
pub const TIMER_INTERRUPTS: &str = "timer_interrupts_per_s";

/// The co-metric that counts a guest's pause-loop exits.
pub const PAUSE_EXITS: &str = "pause_exits";

/// The co-metric that counts those of them that belong to a storm: more than a hundred of one
/// vCPU in a row.
pub const STORM_EXITS: &str = "storm_exits";

/// The co-metric that counts how often a guest's vCPUs were preempted.
pub const PREEMPTIONS: &str = "preemptions";

/// The co-metric that says how many of them hit a critical section, in percent, as the guest says
/// itself.
pub const CRITICAL_SHARE: &str = "critical_preemption_percent";

/// The co-metric that counts the pause loops that went back to a guest, which it answers.
pub const REFLECTIONS: &str = "reflections";

/// The co-metric that says how many of a guest's answers name a vCPU, in percent.
pub const NAMED_SHARE: &str = "answers_that_name_percent";

/// The co-metric that says at how many of a guest's answers the host yielded to a vCPU that was
/// named, in percent.
pub const YIELDED_SHARE: &str = "answers_yielded_percent";

/// The co-metric that says how much of their time neighbours had, in percent: of each of their
/// vCPUs, where all of them always compute.
pub const CO_RUNNER_SHARE: &str = "co_runner_percent";

/// The latency from the instant that a vCPU wants to run until it is on a pCPU, microseconds.
pub const READY_TO_ON: &str = "ready_to_on_us";

/// How long a latency was: each length with how often it occurred, shortest first.
pub type Lengths = Vec<(f64, u64)>;

/// What a neighbour did during the subject's run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NeighbourResult {
    /// The neighbour VM's name.
    pub vm: String,
    /// Its workload.
    pub workload: String,
    /// What its workload measures.
    pub metric: Metric,
    /// The measured value; `None` when it could not be read.
    pub value: Option<f64>,
    /// vCPU-seconds that it was on a pCPU while the subject ran; where known.
    #[serde(default)]
    pub on_s: Option<f64>,
}

/// The ground truth of a run in figures, summed over the VM's vCPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TruthSummary {
    /// How it was observed: `sched_switch` or `schedstat`.
    pub method: String,
    /// Length of the window in seconds.
    pub window_s: f64,
    /// vCPU-seconds on a pCPU.
    pub on_s: f64,
    /// vCPU-seconds wanting to run without a pCPU.
    pub off_s: f64,
    /// vCPU-seconds halted.
    pub idle_s: f64,
    /// Number of off intervals.
    pub off_count: u64,
    /// Their median, 99th percentile and maximum in microseconds; absent
    /// where only totals are known.
    pub off_us: Option<[f64; 3]>,
    /// Bound on the error of host time expressed in guest time, microseconds.
    pub alignment_error_us: Option<f64>,
    /// Events lost by the host's ring buffer.
    pub lost: u64,
    /// The recording beside `runs.jsonl`, where one was kept.
    pub recording: Option<String>,
    /// Injected off intervals against those observed, where an injector ran.
    pub injected: Option<InjectionCheck>,
    /// What the guest found out by itself against this truth, where it recorded.
    #[serde(default)]
    pub sensed: Option<SenseCheck>,
}

/// Injected off intervals, compared with the observed ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InjectionCheck {
    /// How many were injected.
    pub injected: u64,
    /// How many of them were not observed.
    pub missing: u64,
    /// How many met a vCPU that was not on when they began (halted, or off
    /// already), so that their length is not that of an off interval.
    #[serde(default)]
    pub not_on: u64,
    /// How many were prolonged by another thread of the host, which ran on the pCPU
    /// between the injector and the vCPU: the off interval really was a longer one.
    #[serde(default)]
    pub prolonged: u64,
    /// Each other one: asked-for length, truth (measured by the injector itself) and
    /// observed length, in microseconds.
    pub pairs_us: Vec<[f64; 3]>,
}

/// One run of one cell: the format of a line of `runs.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The planned run's number in the matrix that it was made for.
    pub run: u64,
    /// The repeat (block) it belongs to. Every cell runs once in a block.
    pub block: u32,
    /// Which boot of the subject it ran in; boots are numbered as they start.
    pub boot: u32,
    /// Its position within that boot, from 0.
    pub position: u32,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// The cell.
    pub cell: Cell,
    /// What its workload measures.
    pub metric: Metric,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Further figures of the workload's output, by name (the name ends in the unit).
    #[serde(default)]
    pub co_metrics: BTreeMap<String, f64>,
    /// Latencies by name (the name ends in the unit), where they were kept.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub latencies: BTreeMap<String, Lengths>,
    /// What the neighbours did meanwhile.
    #[serde(default)]
    pub neighbours: Vec<NeighbourResult>,
    /// The subject's ground truth.
    #[serde(default)]
    pub truth: Option<TruthSummary>,
    /// KVM's counters during the run, where the host's KVM could be asked:
    /// debugfs counters by their name, exit reasons as `exit:<reason>`.
    #[serde(default)]
    pub kvm: BTreeMap<String, u64>,
    /// Seconds the workload ran.
    pub elapsed_s: f64,
    /// Seconds from QEMU's start to the first accepted job, of this boot.
    pub boot_s: f64,
    /// Share of one CPU that the lab itself used while the workload ran.
    pub lab_cpu_share: f64,
    /// Spinlock kind that the guest's kernel reports, such as `native qspinlock`.
    #[serde(default)]
    pub spinlock: String,
    /// SHA-256 of what guest and host wrote, where time is virtual: the same on every machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// When the run started, RFC 3339 in UTC.
    pub started: String,
    /// Where the figure comes from.
    pub label: Label,
    /// What decides the run; absent from runs recorded before runs had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// The entry of `identities.json` that spells the identity out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<Identity>,
}

impl RunRecord {
    /// The value of a run that ended, `Some(None)` for one that did not finish,
    /// `None` for a failed one, which does not count as an observation.
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
