//! `policy/adaptive_spin.h`: decides whether a task that spins for a lock should go on spinning.

/// The owner's vCPU, which is off, and the price of sleeping.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdaptiveSpin {
    /// The latest time at which it can have gone off, in nanoseconds.
    pub off_since_ns: u64,
    /// The mean length of its off intervals; 0: none was seen before.
    pub off_mean_ns: u64,
    /// The time that it takes to sleep and be woken.
    pub block_ns: u64,
}

// SAFETY: for every call below: the functions read only what their references point to, and the
// struct has the fields of the C struct in the same order.
unsafe extern "C" {
    fn adaptive_spin_left_ns(spin: *const AdaptiveSpin, now_ns: u64) -> u64;
    fn adaptive_spin_ends(spin: *const AdaptiveSpin, now_ns: u64) -> i32;
}

impl AdaptiveSpin {
    /// Returns how long the owner will probably still be off.
    pub fn left_ns(&self, now_ns: u64) -> u64 {
        // SAFETY: see above.
        unsafe { adaptive_spin_left_ns(self, now_ns) }
    }

    /// Returns whether the spinner should sleep.
    pub fn ends(&self, now_ns: u64) -> bool {
        // SAFETY: see above.
        unsafe { adaptive_spin_ends(self, now_ns) != 0 }
    }
}
