//! A guest's findings about itself over some time: the content of a session file.

use serde::Serialize;

use crate::VcpuState;
use crate::episode::Spin;

/// An off interval that the guest found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundOff {
    /// Index of the vCPU.
    pub vcpu: u16,
    /// Time at which the vCPU left its pCPU, nanoseconds of the guest's CLOCK_MONOTONIC: the middle
    /// of the known bounds.
    pub start_ns: u64,
    /// Time at which the vCPU was back, nanoseconds of the guest's CLOCK_MONOTONIC, exact.
    pub end_ns: u64,
    /// Maximum distance of the true start from `start_ns` in nanoseconds, either way.
    pub start_error_ns: u64,
    /// Whether the vCPU had been idle and was asked to run.
    pub was_idle: bool,
}

/// State in which one vCPU appeared to another at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Time of the look, nanoseconds of the guest's CLOCK_MONOTONIC.
    pub t_ns: u64,
    /// The vCPU looked at.
    pub vcpu: u16,
    /// State in which it appeared to be.
    pub state: VcpuState,
}

/// A session: the findings of one recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Session {
    /// Number of vCPUs of the guest, up to the last one that was online.
    pub vcpus: u16,
    /// The vCPUs among them that were always offline, in order.
    pub offline: Vec<u16>,
    /// First instant that the session covers, nanoseconds of the guest's CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Last instant that the session covers.
    pub end_ns: u64,
    /// Off intervals, ordered by their ends on each vCPU.
    pub offs: Vec<FoundOff>,
    /// Spins, in order of their ends.
    pub spins: Vec<Spin>,
    /// Looks of one vCPU at others, in order of time.
    pub looks: Vec<Look>,
    /// Time in nanoseconds for which ticks found each vCPU spinning in user space; empty if ticks
    /// did not sample.
    pub user_spin_ns: Vec<u64>,
    /// Steal time of each vCPU in nanoseconds, as the hypervisor reports it; empty if it was not
    /// read.
    pub steal_ns: Vec<u64>,
    /// Number of findings that were lost because they came faster than they were fetched.
    pub lost: u64,
    /// Number of heartbeats that were added.
    pub beats: u64,
    /// Program, kernel and machine of the recording, as far as the file has them.
    pub about: About,
    /// Where the file is cut off, if it is.
    pub incomplete: Option<String>,
}

/// Entry in [`About::hidden`] of a kernel that does not show when its tick is due, and got no
/// heartbeats.
pub const BUSY: &str = "off intervals of busy vCPUs";

/// Program, kernel and machine of a measurement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct About {
    /// Version of unspin.
    pub program: Option<String>,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Kind of machine: hypervisor, and confidential VM if it is one.
    pub machine: Option<String>,
    /// What the kernel does not show, such as `waits for IPIs`, if the recorder looked for it.
    pub hidden: Vec<String>,
}
