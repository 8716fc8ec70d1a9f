//! `policy/topology.h`: determines which vCPUs share a pCPU.

use std::time::Duration;

/// The relation between two vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// The tries so far do not decide; try again.
    Unknown,
    /// Each has a pCPU, or the tries have ended without a decision.
    Apart,
    /// They share a pCPU.
    Stacked,
}

// SAFETY: for the calls below: the functions take and return only numbers. The statics are
// constants.
unsafe extern "C" {
    safe static topology_try_ns: u64;
    safe static topology_pause_ns: u64;
    fn topology_together_ns(a_on_ns: u64, b_on_ns: u64) -> u64;
    fn topology_relation(handoffs: u64, together_ns: u64, tries: u32) -> i32;
}

/// Returns how long two unrelated vCPUs are on together in a try, on average, if each was on for
/// the given time.
pub fn together(on: [Duration; 2]) -> Duration {
    let [a, b] = on.map(|on| on.as_nanos() as u64);
    // SAFETY: see above.
    Duration::from_nanos(unsafe { topology_together_ns(a, b) })
}

/// Judges the relation after some tries. `handoffs` counts the moves of a cache line in the best
/// try; `together` is how long unrelated vCPUs would have been on together in all of them.
pub fn relation(handoffs: u64, together: Duration, tries: u32) -> Relation {
    // SAFETY: see above.
    match unsafe { topology_relation(handoffs, together.as_nanos() as u64, tries) } {
        1 => Relation::Apart,
        2 => Relation::Stacked,
        _ => Relation::Unknown,
    }
}

/// Returns how long a try lasts.
pub fn try_time() -> Duration {
    Duration::from_nanos(topology_try_ns)
}

/// Returns the pause after a try that showed nothing.
pub fn pause() -> Duration {
    Duration::from_nanos(topology_pause_ns)
}
