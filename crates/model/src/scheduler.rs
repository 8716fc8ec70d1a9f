//! Figures of the guest scheduler.

use serde::{Deserialize, Serialize};

/// What the scheduler does now, and has done since it was loaded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
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
    /// Spinners that were told to sleep because the owner's vCPU was off.
    pub slept: u64,
    /// vCPUs that were asked whether they are on.
    pub asked: u64,
    /// Tasks that gave way to one that woke and had had less.
    pub preempted: u64,
    /// vCPUs that were taken out of use.
    pub cleared: u64,
}
