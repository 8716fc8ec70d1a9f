//! `policy/topology.h`: which vCPUs share a pCPU.

use std::time::Duration;

/// What two vCPUs are to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// Nothing tells yet: try again.
    Unknown,
    /// Each has a pCPU.
    Apart,
    /// They share one.
    Stacked,
}

// SAFETY: of the call below: the function takes and gives numbers only. The rest are constants.
unsafe extern "C" {
    safe static topology_try_ns: u64;
    safe static topology_pause_ns: u64;
    fn topology_relation(handoffs: u64, tries: u32) -> i32;
}

/// What so many tries say, in the best of which a cache line went to and fro so often.
pub fn relation(handoffs: u64, tries: u32) -> Relation {
    // SAFETY: see above.
    match unsafe { topology_relation(handoffs, tries) } {
        1 => Relation::Apart,
        2 => Relation::Stacked,
        _ => Relation::Unknown,
    }
}

/// How long a try lasts.
pub fn try_time() -> Duration {
    Duration::from_nanos(topology_try_ns)
}

/// The pause after a try that told nothing.
pub fn pause() -> Duration {
    Duration::from_nanos(topology_pause_ns)
}
