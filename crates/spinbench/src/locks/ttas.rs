//! The test-and-test-and-set lock: swap only after a read saw the lock free. Unfair.
//!
//! Source: L. Rudolph and Z. Segall, "Dynamic decentralized cache schemes for MIMD
//! parallel processors", ISCA 1984.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Padded, RawLock, spin_until};

/// A test-and-test-and-set lock.
#[derive(Default)]
pub struct Ttas {
    held: Padded<AtomicBool>,
}

impl RawLock for Ttas {
    type Node = ();

    #[inline]
    unsafe fn lock(&self, (): &(), stop: &AtomicBool) -> bool {
        let held = &self.held.0;
        spin_until(stop, || !held.load(Ordering::Relaxed) && !held.swap(true, Ordering::Acquire))
    }

    #[inline]
    unsafe fn unlock(&self, (): &()) {
        self.held.0.store(false, Ordering::Release);
    }
}
