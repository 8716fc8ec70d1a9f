//! No lock: the measure of what the CPUs give, and the greedy neighbour.

use std::sync::atomic::AtomicBool;

use super::RawLock;

/// Excludes nobody.
#[derive(Default)]
pub struct NoLock;

impl RawLock for NoLock {
    type Node = ();

    const EXCLUDES: bool = false;

    #[inline]
    unsafe fn lock(&self, (): &(), _stop: &AtomicBool) -> bool {
        true
    }

    #[inline]
    unsafe fn unlock(&self, (): &()) {}
}
