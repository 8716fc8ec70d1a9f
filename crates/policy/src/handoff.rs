//! `policy/handoff.h`: delays the preemption of a lock holder that has waiters.

/// A lock that a task has begun to wait for.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contended {
    /// The lock's address; 0: this place is free.
    pub lock: u64,
    /// When a task last began to wait for it.
    pub wanted_ns: u64,
    /// The process whose address space the address is in; 0: the kernel's.
    pub process: u32,
    /// The kind of lock, a number that the caller chooses.
    pub kind: u32,
}

/// The number of locks in one table.
pub const LOCKS: usize = 8;

// SAFETY: for every call below: the functions read only what their references point to (LOCKS
// elements of an array), and the struct has the fields of the C struct in the same order.
unsafe extern "C" {
    fn handoff_place(locks: *const Contended, lock: u64, process: u32) -> u32;
    fn handoff_is_contended(lock: *const Contended, process: u32, now_ns: u64) -> i32;
    fn handoff_goes_on(due_ns: u64, now_ns: u64) -> i32;
}

/// Returns the place for a lock: the place that it has, or that of the lock whose last wait began
/// the longest ago.
pub fn place(locks: &[Contended; LOCKS], lock: u64, process: u32) -> usize {
    // SAFETY: see above.
    unsafe { handoff_place(locks.as_ptr(), lock, process) as usize }
}

impl Contended {
    /// Returns whether it is a lock of this process that a task has recently begun to wait for.
    pub fn is_contended(&self, process: u32, now_ns: u64) -> bool {
        // SAFETY: see above.
        unsafe { handoff_is_contended(self, process, now_ns) != 0 }
    }
}

/// Returns whether a holder that should have given way at `due_ns` may still go on.
pub fn goes_on(due_ns: u64, now_ns: u64) -> bool {
    // SAFETY: see above.
    unsafe { handoff_goes_on(due_ns, now_ns) != 0 }
}
