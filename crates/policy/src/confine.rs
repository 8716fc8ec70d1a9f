//! `policy/confine.h`: decides how many vCPUs tasks may use if the kernel's scheduler stays in
//! place.

/// The activity of all vCPUs in a window of time, in thousandths of a vCPU unless it is a count.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// The vCPUs ran.
    pub on_m: u32,
    /// The vCPUs wanted to run and were off.
    pub off_m: u32,
    /// The vCPUs were in a slow path that waits without sleeping, on or off.
    pub spin_m: u32,
    /// The vCPUs were off in such a slow path, as far as is known. Like `off_m`, it counts in the
    /// window in which an off interval ends.
    pub spin_off_m: u32,
    /// Half of the time off that lies in slow paths that held back ticks. This half counts as on,
    /// the other half as off.
    pub held_m: u32,
    /// The number of such slow paths that ended: a count.
    pub paths: u32,
    /// The vCPUs switched between tasks, estimated at a fixed price for each switch.
    pub switch_m: u32,
    /// The ticks that found a vCPU busy: a count.
    pub ticks: u32,
    /// The ticks among them that found a vCPU in user mode: a count.
    pub user_ticks: u32,
    /// The weight of the window in a mean, in windows, if it was longer than one; 0 means 1.
    pub windows: u32,
}

/// `struct confine_sums`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sums {
    windows: u32,
    skipped: u32,
    weight: u64,
    sums_m: [u64; 6],
}

/// The controller's state.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Confine {
    vcpus: u32,
    usage: u32,
    phase: u32,
    before: u32,
    tried: u32,
    learnt: u32,
    tried_spin: u32,
    left: u32,
    calm: u32,
    calm_wanted: u32,
    calm_trial: u32,
    computes: [u32; 5],
    whole: u32,
    halved: u32,
    anyway: u32,
    sums: [Sums; 3],
    quiet_ns: u64,
    released_ns: u64,
    waits_ns: [u64; 4],
    began_ns: u64,
    /// The trials of fewer vCPUs, and those of them that were kept.
    pub trials_fewer: [u64; 2],
    /// The trials of more vCPUs, and those of them that were kept.
    pub trials_more: [u64; 2],
}

/// The time between two decisions, in nanoseconds.
pub const WINDOW_NS: u64 = 10_000_000;

// SAFETY: for every call below: the functions read and write only what their references point to,
// and each struct has the fields of its C struct in the same order.
unsafe extern "C" {
    fn confine_wake(confine: *mut Confine);
    fn confine_isolates(confine: *const Confine, now_ns: u64) -> core::ffi::c_int;
    fn confine_step(confine: *mut Confine, facts: *const Facts, now_ns: u64) -> u32;
}

/// `CONFINE_FEWER` to `CONFINE_FEWER_AGAIN` in `policy/confine.h`.
const FEWER: std::ops::RangeInclusive<u32> = 1..=3;
/// `CONFINE_BEFORE`.
const BEFORE: u32 = 2;

impl Confine {
    /// Returns a controller that has all vCPUs in use.
    pub fn new(vcpus: u32) -> Confine {
        Confine { vcpus, usage: vcpus, ..Confine::default() }
    }

    /// Decides after a window. Returns how many vCPUs tasks may use from now on.
    pub fn step(&mut self, facts: &Facts, now_ns: u64) -> u32 {
        // SAFETY: see above.
        unsafe { confine_step(self, facts, now_ns) }
    }

    /// Restarts the controller after spins have ended its rest.
    pub fn wake(&mut self) {
        // SAFETY: see above.
        unsafe { confine_wake(self) }
    }

    /// Returns how many vCPUs are in use.
    pub fn in_use(&self) -> u32 {
        self.usage
    }

    /// Returns whether that number is on trial.
    pub fn on_trial(&self) -> bool {
        self.phase != 0
    }

    /// Returns whether a trial compares that number with fewer vCPUs, which are in use in some of
    /// its parts.
    pub fn tries_fewer(&self) -> bool {
        FEWER.contains(&self.phase)
    }

    /// Returns whether a trial has fewer vCPUs in use now.
    pub fn has_fewer(&self) -> bool {
        self.tries_fewer() && self.phase != BEFORE
    }

    /// Returns whether to isolate the vCPUs that are not in use.
    pub fn isolates(&self, now_ns: u64) -> bool {
        // SAFETY: see above.
        unsafe { confine_isolates(self, now_ns) != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // SAFETY: policy.c defines these as constants of this type.
    unsafe extern "C" {
        safe static confine_size: u64;
        safe static confine_facts_size: u64;
    }

    #[test]
    fn structs_are_as_large_as_c_s() {
        assert_eq!(size_of::<Confine>() as u64, confine_size);
        assert_eq!(size_of::<Facts>() as u64, confine_facts_size);
    }
}
