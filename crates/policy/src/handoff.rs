//! `policy/handoff.h`: who holds what others wait for is not to be kept from running.

/// The holder on a vCPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Handoff {
    tid: u32,
    unused: u32,
    wanted_ns: u64,
}

// SAFETY: of every call below: the functions read and write nothing but what they are
// given by reference, and the struct has the C one's fields in its order.
unsafe extern "C" {
    fn handoff_want(handoff: *mut Handoff, tid: u32, now_ns: u64);
    fn handoff_goes_on(
        handoff: *const Handoff,
        tid: u32,
        ran_ns: u64,
        slice_ns: u64,
        now_ns: u64,
    ) -> i32;
}

impl Handoff {
    /// Somebody waits for what this task holds.
    pub fn want(&mut self, tid: u32, now_ns: u64) {
        // SAFETY: see above.
        unsafe { handoff_want(self, tid, now_ns) }
    }

    /// Whether the task goes on after so long in a slice.
    pub fn goes_on(&self, tid: u32, ran_ns: u64, slice_ns: u64, now_ns: u64) -> bool {
        // SAFETY: see above.
        unsafe { handoff_goes_on(self, tid, ran_ns, slice_ns, now_ns) != 0 }
    }
}
