//! `policy/steal_governor.h`: a baseline to compare with.

/// What has been decided.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StealGovernor {
    /// All vCPUs that there are.
    pub vcpus: u32,
    usage: u32,
    since_ns: u64,
    windows: u64,
    off_sum: u64,
}

// SAFETY: of the call below: the function reads and writes nothing but what it is given
// by reference, and the struct has the C one's fields in its order.
unsafe extern "C" {
    fn steal_governor_step(governor: *mut StealGovernor, off_m: u32, now_ns: u64) -> u32;
}

impl StealGovernor {
    /// Nothing has been decided yet.
    pub fn new(vcpus: u32) -> StealGovernor {
        StealGovernor { vcpus, ..StealGovernor::default() }
    }

    /// A window has passed with so many thousandths of a vCPU off; how many to use.
    pub fn step(&mut self, off_m: u32, now_ns: u64) -> u32 {
        // SAFETY: see above.
        unsafe { steal_governor_step(self, off_m, now_ns) }
    }
}
