//! What a guest found out about itself over some time: the content of a session file.

use serde::Serialize;

use crate::VcpuState;
use crate::episode::Spin;

/// An off interval that the guest found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundOff {
    /// The vCPU.
    pub vcpu: u16,
    /// When it left its pCPU, nanoseconds of the guest's CLOCK_MONOTONIC: the middle of
    /// the bounds that are known.
    pub start_ns: u64,
    /// When it was back, to the nanosecond.
    pub end_ns: u64,
    /// How far from `start_ns` the true start can be, either way.
    pub start_error_ns: u64,
    /// It was idle and was asked to run.
    pub was_idle: bool,
}

/// What one vCPU seemed to another to be doing at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The instant, nanoseconds of the guest's CLOCK_MONOTONIC.
    pub t_ns: u64,
    /// The vCPU looked at.
    pub vcpu: u16,
    /// What it seemed to be doing.
    pub state: VcpuState,
}

/// A session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Session {
    /// vCPUs of the guest, up to the last one that was online.
    pub vcpus: u16,
    /// Those of them that were offline all the time, in order.
    pub offline: Vec<u16>,
    /// First instant that it covers, nanoseconds of the guest's CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Last instant that it covers.
    pub end_ns: u64,
    /// Off intervals, ordered by their ends on each vCPU.
    pub offs: Vec<FoundOff>,
    /// Spins, in order of their ends.
    pub spins: Vec<Spin>,
    /// Looks of one vCPU at others, in order of time.
    pub looks: Vec<Look>,
    /// Each vCPU's nanoseconds spent spinning in user space, as its ticks found; empty where
    /// they did not look.
    pub user_spin_ns: Vec<u64>,
    /// Each vCPU's nanoseconds of steal time, as the hypervisor reports it; empty where nobody
    /// asked.
    pub steal_ns: Vec<u64>,
    /// Findings that were lost because they came faster than they were fetched.
    pub lost: u64,
    /// Heartbeats that were added.
    pub beats: u64,
    /// Where it was recorded, as far as the file says.
    pub about: About,
    /// Where the file is cut off, if it is.
    pub incomplete: Option<String>,
}

/// In [`About::hidden`] of a kernel that does not say when its tick is due, and got no heartbeats.
pub const BUSY: &str = "off intervals of busy vCPUs";

/// Where something was measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct About {
    /// The version of unspin.
    pub program: Option<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The kind of machine: hypervisor, and confidential VM if it is one.
    pub machine: Option<String>,
    /// What the kernel does not show, such as `waits for IPIs`, where that was looked for.
    pub hidden: Vec<String>,
}
