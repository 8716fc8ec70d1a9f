//! The ticket lock: take a number, and wait until it is called. FIFO.
//!
//! Source: D. P. Reed and R. K. Kanodia, "Synchronization with eventcounts and
//! sequencers", CACM 22(2), 1979; as a spinlock, J. M. Mellor-Crummey and M. L. Scott,
//! "Algorithms for scalable synchronization on shared-memory multiprocessors", ACM TOCS 9(1), 1991.
//! Linux used it for its spinlocks from 2.6.25 to 4.1.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::{Padded, RawLock, spin_until};

/// A ticket lock. Both counters wrap around.
#[derive(Default)]
pub struct Ticket {
    next: Padded<AtomicU32>,
    serving: Padded<AtomicU32>,
}

impl RawLock for Ticket {
    type Node = ();

    #[inline]
    unsafe fn lock(&self, (): &(), stop: &AtomicBool) -> bool {
        let ticket = self.next.0.fetch_add(1, Ordering::Relaxed);
        spin_until(stop, || self.serving.0.load(Ordering::Acquire) == ticket)
    }

    #[inline]
    unsafe fn unlock(&self, (): &()) {
        // Only the holder writes here, so no atomic addition is needed.
        let served = self.serving.0.load(Ordering::Relaxed);
        self.serving.0.store(served.wrapping_add(1), Ordering::Release);
    }
}
