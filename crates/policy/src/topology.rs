//! `policy/topology.h`: which vCPUs share a pCPU.

use std::time::Duration;

/// What two vCPUs are to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// Nothing shows yet: try again.
    Unknown,
    /// Each has a pCPU, or it stays open.
    Apart,
    /// They share one.
    Stacked,
}

// SAFETY: of the calls below: the functions take and give numbers only. The rest are constants.
unsafe extern "C" {
    safe static topology_try_ns: u64;
    safe static topology_pause_ns: u64;
    fn topology_together_ns(a_on_ns: u64, b_on_ns: u64) -> u64;
    fn topology_relation(handoffs: u64, together_ns: u64, tries: u32) -> i32;
}

/// How long two that have nothing to do with each other are on together in a try, on average,
/// where they were on for so long each.
pub fn together(on: [Duration; 2]) -> Duration {
    let [a, b] = on.map(|on| on.as_nanos() as u64);
    // SAFETY: see above.
    Duration::from_nanos(unsafe { topology_together_ns(a, b) })
}

/// What so many tries say, in the best of which a cache line went to and fro so often, and in
/// which the two would have been on together for so long if they had nothing to do with each
/// other.
pub fn relation(handoffs: u64, together: Duration, tries: u32) -> Relation {
    // SAFETY: see above.
    match unsafe { topology_relation(handoffs, together.as_nanos() as u64, tries) } {
        1 => Relation::Apart,
        2 => Relation::Stacked,
        _ => Relation::Unknown,
    }
}

/// How long a try lasts.
pub fn try_time() -> Duration {
    Duration::from_nanos(topology_try_ns)
}

/// The pause after a try that showed nothing.
pub fn pause() -> Duration {
    Duration::from_nanos(topology_pause_ns)
}
