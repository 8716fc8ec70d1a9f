//! `policy/topology.h`: which vCPUs share a pCPU.

use std::time::Duration;

/// How long a try lasts (`TOPOLOGY_TRY_NS`).
pub const TRY: Duration = Duration::from_millis(6);
/// The pause after a try that told nothing (`TOPOLOGY_PAUSE_NS`).
pub const PAUSE: Duration = Duration::from_millis(100);

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

// SAFETY: of the call below: the function takes and gives numbers only.
unsafe extern "C" {
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
