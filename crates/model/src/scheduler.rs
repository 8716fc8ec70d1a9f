//! Figures of the guest scheduler.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What keeps tasks on fewer vCPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Actuator {
    /// A scheduler of `unspin` in place of the kernel's.
    #[default]
    SchedExt,
    /// The kernel's own scheduler, whose tasks are limited by cgroups.
    Cpuset,
}

impl Actuator {
    /// What names it, and so has it act where unspin would do nothing.
    pub fn option(self) -> &'static str {
        match self {
            Actuator::Cpuset => "--actuator cpuset",
            Actuator::SchedExt => "--actuator sched-ext",
        }
    }
}

/// What is limited, and what that rests on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Cgroups that are limited now; none where a scheduler of `unspin` limits.
    pub cgroups: u64,
    /// Cgroups whose vCPUs somebody else has set.
    pub left_alone: Vec<String>,
    /// Processes in the root cgroup, which no limit reaches.
    pub in_root: u64,
    /// Why the vCPUs out of use are not isolated, though the kernel may know partitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_isolated: Option<String>,
    /// Slow paths in the kernel that were counted.
    pub spins: u64,
    /// Those whose end was not seen; their time is not counted.
    pub spins_lost: u64,
    /// Functions that the kernel lacks or refuses programs in: what is spun there, if anything,
    /// is not counted.
    pub not_counted: Vec<String>,
    /// Why the last limit was not set, or not lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Changes of the limit that failed, each try counted.
    #[serde(default)]
    pub failures: u64,
    /// Why who decides has no real-time priority, and so decides late where every vCPU spins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<String>,
}

/// What the scheduler does now, and has done since it was loaded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// By what tasks are kept on fewer vCPUs, or would be where nothing is limited.
    #[serde(default)]
    pub actuator: Actuator,
    /// Why nothing is limited or measured, where that is so: the figures are then zero without
    /// having been measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resting: Option<String>,
    /// What is limited, and what that rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Seconds since it was loaded.
    #[serde(default)]
    pub seconds: f64,
    /// A timer later than this shows that its vCPU was off, microseconds.
    pub late_us: u64,
    /// vCPUs that there are.
    pub vcpus: u32,
    /// vCPUs in use now.
    pub used: u32,
    /// Which those are.
    #[serde(default)]
    pub used_vcpus: Vec<u32>,
    /// vCPUs that share a pCPU, for each pCPU that several share. Empty while that is not known.
    #[serde(default)]
    pub stacks: Vec<Vec<u32>>,
    /// Whether that is being tried.
    pub trial: bool,
    /// vCPUs on, off and spinning in the last window, and tasks that waited for one.
    pub on: f64,
    /// Off.
    pub off: f64,
    /// Spinning.
    pub spinning: f64,
    /// Waiting tasks.
    pub waiting: f64,
    /// vCPUs in use since the start, on average.
    pub used_mean: f64,
    /// vCPU-seconds off since the start.
    pub off_s: f64,
    /// vCPU-seconds spent spinning since the start.
    pub spin_s: f64,
    /// Trials of fewer vCPUs, and those that were kept.
    pub trials_fewer: [u64; 2],
    /// Trials of more.
    pub trials_more: [u64; 2],
    /// Tasks that went to an idle vCPU at once.
    pub placed: u64,
    /// Tasks that were queued.
    pub queued: u64,
    /// Tasks that a vCPU took from another one's queue.
    pub pulled: u64,
    /// Slices that were lengthened because others waited for what the task held.
    pub extended: u64,
    /// Holders that waited for a vCPU and ran next on that of a task that waits for them.
    pub handed: u64,
    /// Spinners that were made to sleep because the owner's vCPU was off.
    pub slept: u64,
    /// vCPUs that were asked whether they are on.
    pub asked: u64,
    /// Tasks that had to wait because their cgroup had used its time.
    #[serde(default)]
    pub throttled: u64,
    /// Tasks that left a vCPU's own queue because a real-time task took the vCPU.
    #[serde(default)]
    pub reenqueued: u64,
    /// Tasks that gave way to one that woke and had had less.
    pub preempted: u64,
    /// vCPUs that were taken out of use.
    pub cleared: u64,
}

impl Stats {
    /// What happened since `before`, as co-metrics of a run: vCPUs that were off and that
    /// spun, on average, and how often each thing was done in a second. Empty where no time
    /// has passed, the scheduler was loaded again, or nothing was measured.
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
