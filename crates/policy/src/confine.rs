//! `policy/confine.h`: how many vCPUs tasks may use, where the kernel's scheduler stays.

/// What all vCPUs did in a window of time, in thousandths of a vCPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// They ran.
    pub on_m: u32,
    /// They wanted to run and were off.
    pub off_m: u32,
    /// They were in a slow path that waits without sleeping, whether on or off.
    pub spin_m: u32,
    /// They were off in one, as far as is known: where off intervals end.
    pub spin_off_m: u32,
    /// They were on or off in one that held ticks back: as much again counts as off.
    pub held_m: u32,
    /// How many such slow paths ended.
    pub paths: u32,
    /// They switched between tasks: an estimate, a price for each time.
    pub switch_m: u32,
    /// Ticks that found it at work, and those of them in user mode: counts.
    pub ticks: u32,
    /// See above.
    pub user_ticks: u32,
    /// As how many windows it counts in a mean, where it was longer than one; 0 is 1.
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

/// What has been decided, and what is being tried.
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
    computes: [u32; 4],
    whole: u32,
    anyway: u32,
    sums: [Sums; 3],
    quiet_ns: u64,
    released_ns: u64,
    waits_ns: [u64; 4],
    began_ns: u64,
    /// Trials of fewer vCPUs, and those that were kept.
    pub trials_fewer: [u64; 2],
    /// The same for more.
    pub trials_more: [u64; 2],
}

/// Time between two decisions, nanoseconds.
pub const WINDOW_NS: u64 = 10_000_000;

// SAFETY: of every call below: the functions read and write nothing but what they
// are given by reference, and each struct has the C one's fields in its order.
unsafe extern "C" {
    fn confine_wake(confine: *mut Confine);
    fn confine_isolates(confine: *const Confine, now_ns: u64) -> core::ffi::c_int;
    fn confine_step(confine: *mut Confine, facts: *const Facts, now_ns: u64) -> u32;
}

/// `CONFINE_FEWER` to `CONFINE_FEWER_AGAIN` in `policy/confine.h`.
const FEWER: std::ops::RangeInclusive<u32> = 1..=3;

impl Confine {
    /// All vCPUs are in use.
    pub fn new(vcpus: u32) -> Confine {
        Confine { vcpus, usage: vcpus, ..Confine::default() }
    }

    /// A window has passed; how many vCPUs tasks may use from now on.
    pub fn step(&mut self, facts: &Facts, now_ns: u64) -> u32 {
        // SAFETY: see above.
        unsafe { confine_step(self, facts, now_ns) }
    }

    /// Spins woke who decides, who had rested.
    pub fn wake(&mut self) {
        // SAFETY: see above.
        unsafe { confine_wake(self) }
    }

    /// How many are in use.
    pub fn in_use(&self) -> u32 {
        self.usage
    }

    /// Whether that is being tried.
    pub fn on_trial(&self) -> bool {
        self.phase != 0
    }

    /// Whether it is compared with fewer, which are in use in some parts of the trial.
    pub fn tries_fewer(&self) -> bool {
        FEWER.contains(&self.phase)
    }

    /// Whether vCPUs that are not in use are to be isolated.
    pub fn isolates(&self, now_ns: u64) -> bool {
        // SAFETY: see above.
        unsafe { confine_isolates(self, now_ns) != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // SAFETY: constants of policy.c, and of that type.
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
