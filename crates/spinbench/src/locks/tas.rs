//! The test-and-set lock: swap until the old value was free. Unfair.
//!
//! Source: the oldest spinlock; measured by T. E. Anderson, "The performance of spin lock
//! alternatives for shared-memory multiprocessors", IEEE TPDS 1(1), 1990. This version has no
//! back-off.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Padded, RawLock, spin_until};

/// A test-and-set lock.
#[derive(Default)]
pub struct Tas {
    held: Padded<AtomicBool>,
}

impl RawLock for Tas {
    type Node = ();

    #[inline]
    unsafe fn lock(&self, (): &(), stop: &AtomicBool) -> bool {
        spin_until(stop, || !self.held.0.swap(true, Ordering::Acquire))
    }

    #[inline]
    unsafe fn unlock(&self, (): &()) {
        self.held.0.store(false, Ordering::Release);
    }
}
