//! `policy/handoff.h`: who holds what others wait for is not to be kept from running.

/// A lock that somebody has begun to wait for.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contended {
    /// Its address; 0: this place is free.
    pub lock: u64,
    /// When, the last time.
    pub wanted_ns: u64,
    /// The process whose address it is; 0: the kernel's.
    pub process: u32,
    /// What it is.
    pub kind: u32,
}

/// Locks that are remembered together.
pub const LOCKS: usize = 8;

// SAFETY: of every call below: the functions read nothing but what they are given by
// reference, LOCKS of them where it is an array, and the struct has the C one's fields in
// its order.
unsafe extern "C" {
    fn handoff_place(locks: *const Contended, lock: u64, process: u32) -> u32;
    fn handoff_is_contended(lock: *const Contended, process: u32, now_ns: u64) -> i32;
    fn handoff_goes_on(due_ns: u64, now_ns: u64) -> i32;
}

/// The place for a lock: the one that it has, or that of the one which nobody has waited
/// for the longest.
pub fn place(locks: &[Contended; LOCKS], lock: u64, process: u32) -> usize {
    // SAFETY: see above.
    unsafe { handoff_place(locks.as_ptr(), lock, process) as usize }
}

impl Contended {
    /// Whether it is a lock of this process, and somebody has waited for it lately.
    pub fn is_contended(&self, process: u32, now_ns: u64) -> bool {
        // SAFETY: see above.
        unsafe { handoff_is_contended(self, process, now_ns) != 0 }
    }
}

/// Whether a holder that is to give way since then is to go on.
pub fn goes_on(due_ns: u64, now_ns: u64) -> bool {
    // SAFETY: see above.
    unsafe { handoff_goes_on(due_ns, now_ns) != 0 }
}
