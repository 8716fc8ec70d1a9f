//! `policy/adaptive_spin.h`: whether who spins for a lock should go on.

/// An owner's vCPU that is off.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdaptiveSpin {
    /// Since when, at the latest, nanoseconds.
    pub off_since_ns: u64,
    /// The mean length of its off intervals; 0: there was none before.
    pub off_mean_ns: u64,
    /// What it takes to sleep and be woken.
    pub block_ns: u64,
}

// SAFETY: of every call below: the functions read nothing but what they are given by
// reference, and the struct has the C one's fields in its order.
unsafe extern "C" {
    fn adaptive_spin_left_ns(spin: *const AdaptiveSpin, now_ns: u64) -> u64;
    fn adaptive_spin_ends(spin: *const AdaptiveSpin, now_ns: u64) -> i32;
}

impl AdaptiveSpin {
    /// How long the owner will probably still be off.
    pub fn left_ns(&self, now_ns: u64) -> u64 {
        // SAFETY: see above.
        unsafe { adaptive_spin_left_ns(self, now_ns) }
    }

    /// Whether the spinner should sleep.
    pub fn ends(&self, now_ns: u64) -> bool {
        // SAFETY: see above.
        unsafe { adaptive_spin_ends(self, now_ns) != 0 }
    }
}
