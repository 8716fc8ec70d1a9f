//! `policy/steal_governor.h`: a baseline to compare with.

/// The governor's state.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StealGovernor {
    /// The number of vCPUs in the guest.
    pub vcpus: u32,
    usage: u32,
    since_ns: u64,
    windows: u64,
    off_sum: u64,
}

// SAFETY: for the call below: the function reads and writes only what its references point to, and
// the struct has the fields of the C struct in the same order.
unsafe extern "C" {
    fn steal_governor_step(governor: *mut StealGovernor, off_m: u32, now_ns: u64) -> u32;
}

impl StealGovernor {
    /// Returns a governor that has decided nothing yet.
    pub fn new(vcpus: u32) -> StealGovernor {
        StealGovernor { vcpus, ..StealGovernor::default() }
    }

    /// Notes a window in which `off_m` thousandths of a vCPU were off. Returns how many vCPUs to
    /// use.
    pub fn step(&mut self, off_m: u32, now_ns: u64) -> u32 {
        // SAFETY: see above.
        unsafe { steal_governor_step(self, off_m, now_ns) }
    }
}
