//! No lock: measures what the CPUs provide, and acts as the greedy neighbour.

use std::sync::atomic::AtomicBool;

use super::RawLock;

/// A lock that excludes no thread.
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
