//! Figures of the guest scheduler.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Means of keeping tasks on fewer vCPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Actuator {
    /// A scheduler of `unspin` in place of the kernel's.
    #[default]
    SchedExt,
    /// The kernel's own scheduler, whose tasks cgroups limit.
    Cpuset,
}

impl Actuator {
    /// Returns the option that selects it, which also makes `unspin run` act in a guest where it
    /// would do nothing.
    pub fn option(self) -> &'static str {
        match self {
            Actuator::Cpuset => "--actuator cpuset",
            Actuator::SchedExt => "--actuator sched-ext",
        }
    }
}

/// The cgroups that are limited, and the conditions for that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Number of cgroups that are limited now; 0 if a scheduler of `unspin` sets the limit.
    pub cgroups: u64,
    /// Cgroups whose vCPUs somebody else has set.
    pub left_alone: Vec<String>,
    /// Number of processes in the root cgroup, which no limit reaches.
    pub in_root: u64,
    /// Why the unused vCPUs are not isolated, even if the kernel has partitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_isolated: Option<String>,
    /// Number of the kernel's slow paths that were counted.
    pub spins: u64,
    /// Number of slow paths whose end was not seen; their time is not counted.
    pub spins_lost: u64,
    /// Functions that the kernel lacks, or in which it rejects programs. Any spins in them are not
    /// counted.
    pub not_counted: Vec<String>,
    /// Why spins are not counted any more, so that nothing is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_counting: Option<String>,
    /// Why the last limit was not set, or not lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Number of changes of the limit that failed, counting each try.
    #[serde(default)]
    pub failures: u64,
    /// Why the agent has no real-time priority, and so decides late if every vCPU spins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<String>,
}

/// Figures of the scheduler: the current state, and sums since it was loaded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Means of keeping tasks on fewer vCPUs; if nothing is limited, the means that would be used.
    #[serde(default)]
    pub actuator: Actuator,
    /// Why nothing is limited or measured, if that is so. The figures are then zero without having
    /// been measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resting: Option<String>,
    /// The cgroups that are limited, and the conditions for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Seconds since the scheduler was loaded.
    #[serde(default)]
    pub seconds: f64,
    /// Delay in microseconds; a timer that is later shows that its vCPU was off.
    pub late_us: u64,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Number of vCPUs in use now.
    pub used: u32,
    /// The vCPUs in use now.
    #[serde(default)]
    pub used_vcpus: Vec<u32>,
    /// vCPUs that share a pCPU, for each pCPU that several share. Empty while not known.
    #[serde(default)]
    pub stacks: Vec<Vec<u32>>,
    /// Whether the number of vCPUs in use is on trial.
    pub trial: bool,
    /// vCPUs that were on in the last window, on average.
    pub on: f64,
    /// vCPUs that were off in the last window, on average.
    pub off: f64,
    /// vCPUs that spun in the last window, on average.
    pub spinning: f64,
    /// Tasks that waited for a vCPU in the last window, on average.
    pub waiting: f64,
    /// Number of vCPUs in use since the start, on average.
    pub used_mean: f64,
    /// vCPU-seconds off since the start.
    pub off_s: f64,
    /// vCPU-seconds spent spinning since the start.
    pub spin_s: f64,
    /// Number of trials of fewer vCPUs, and number of those that were kept.
    pub trials_fewer: [u64; 2],
    /// The same for trials of more vCPUs.
    pub trials_more: [u64; 2],
    /// Number of tasks that went to an idle vCPU at once.
    pub placed: u64,
    /// Number of tasks that were queued.
    pub queued: u64,
    /// Number of tasks that a vCPU took from the queue of another one.
    pub pulled: u64,
    /// Number of slices that were lengthened because others waited for what the task held.
    pub extended: u64,
    /// Number of holders that waited for a vCPU, and ran next on the vCPU of a task that waited for
    /// them.
    pub handed: u64,
    /// Number of spinners that were made to sleep because the owner's vCPU was off.
    pub slept: u64,
    /// Number of times that a vCPU was asked whether it is on.
    pub asked: u64,
    /// Number of tasks that had to wait because their cgroup had used its time.
    #[serde(default)]
    pub throttled: u64,
    /// Number of tasks that left a vCPU's own queue because a real-time task took the vCPU.
    #[serde(default)]
    pub reenqueued: u64,
    /// Number of tasks that gave way to one that woke and had had less time.
    pub preempted: u64,
    /// Number of times that a vCPU was taken out of use.
    pub cleared: u64,
}

impl Stats {
    /// Returns what happened since `before`, as co-metrics of a run: the average numbers of vCPUs
    /// off and spinning, and how often per second each action was taken. Returns nothing if no time
    /// has passed, if the scheduler was loaded again, or if nothing was measured.
    pub fn since(&self, before: &Stats) -> BTreeMap<String, f64> {
        let seconds = self.seconds - before.seconds;
        if seconds <= 0.0 || self.resting.is_some() {
            return BTreeMap::new();
        }
        let trials = |stats: &Stats| stats.trials_fewer[0] + stats.trials_more[0];
        let spans = [("off", self.off_s - before.off_s), ("spinning", self.spin_s - before.spin_s)];
        let counts = [
            ("trials", trials(self), trials(before)),
            ("placed", self.placed, before.placed),
            ("queued", self.queued, before.queued),
            ("pulled", self.pulled, before.pulled),
            ("extended", self.extended, before.extended),
            ("handed", self.handed, before.handed),
            ("slept", self.slept, before.slept),
            ("asked", self.asked, before.asked),
            ("throttled", self.throttled, before.throttled),
            ("reenqueued", self.reenqueued, before.reenqueued),
            ("preempted", self.preempted, before.preempted),
            ("cleared", self.cleared, before.cleared),
        ];
        let spans = spans.map(|(name, spent_s)| (format!("scheduler_{name}"), spent_s / seconds));
        let counts = counts.into_iter().map(|(name, now, before)| {
            let per_s = now.saturating_sub(before) as f64 / seconds;
            (format!("scheduler_{name}_per_s"), per_s)
        });
        spans.into_iter().chain(counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_run_are_those_since_it_began() {
        let before = Stats { seconds: 10.0, spin_s: 3.0, handed: 7, ..Stats::default() };
        let after = Stats { seconds: 14.0, spin_s: 5.0, handed: 15, ..Stats::default() };
        let figures = after.since(&before);
        assert_eq!(figures["scheduler_spinning"], 0.5);
        assert_eq!(figures["scheduler_handed_per_s"], 2.0);
        assert!(before.since(&after).is_empty());
        let resting = Stats { resting: Some("the host helps".into()), ..after };
        assert!(resting.since(&before).is_empty());
    }
}
