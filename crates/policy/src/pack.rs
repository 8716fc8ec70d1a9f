//! `policy/pack.h`: how many vCPUs to use.

/// What all vCPUs did in a window of time, in thousandths of a vCPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// They ran.
    pub on_m: u32,
    /// They wanted to run and were off.
    pub off_m: u32,
    /// Of what they ran: spinning.
    pub spin_m: u32,
    /// Tasks that waited for a vCPU.
    pub queued_m: u32,
    /// Tasks that became ready to run.
    pub wakes: u32,
    /// Tasks that a vCPU took from the queue.
    pub taken: u32,
    /// Page faults, and objects that the kernel gave up.
    pub done: u32,
}

/// What a window brought.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Time on, less what was spun, in thousandths of a vCPU.
    pub useful_m: u32,
    /// Tasks that became ready to run.
    pub wakes: u32,
    /// What the kernel counts and what grows with the work.
    pub done: u32,
}

/// What the windows of a phase brought, in sums.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Windows, with the first one, which does not count.
    pub windows: u64,
    /// Useful time.
    pub useful_m: u64,
    /// Spinning.
    pub spin_m: u64,
    /// Off.
    pub off_m: u64,
    /// On.
    pub on_m: u64,
    /// Tasks that waited.
    pub queued_m: u64,
    /// Tasks that woke.
    pub wakes: u64,
    /// What was done.
    pub done: u64,
    /// Windows in which much was done.
    pub done_often: u64,
}

/// What has been decided, and what is being tried.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pack {
    /// All that there are.
    pub vcpus: u32,
    /// That are to be used; 0: all.
    pub usage: u32,
    /// 1 while another number is tried.
    pub phase: u32,
    /// A trial's alternative.
    pub before: u32,
    /// Since the phase began.
    pub sums: Sums,
    /// What that brought.
    pub brought: Progress,
    /// In a trial of fewer: for how many windows on end those in use have been on.
    pub fits: u32,
    /// What one less were on, where that was all the time.
    pub fitted_on_m: u32,
    /// What that brought.
    pub fitted: Progress,
    /// How many a trial of fewer tries at most.
    pub most: u32,
    /// The useful time with all vCPUs, where fewer were better.
    pub beaten_m: u32,
    /// Windows one after the other in which something else was wanted.
    pub changed: u32,
    /// How many fewer than there is time for are tried next.
    pub lower: u32,
    /// What a trial of fewer must gain, in percent.
    pub must_gain: u32,
    /// Wasteful windows one after the other.
    pub wasteful: u32,
    /// Quiet windows one after the other.
    pub quiet: u32,
    /// Windows one after the other in which tasks waited and none was taken.
    pub stuck: u32,
    /// 1: with this number, one more has been tried.
    pub tried_one: u32,
    /// How many tasks woke in a window when fewer were tried last.
    pub tried_fewer_wakes: u32,
    /// Not before this may fewer be tried.
    pub fewer_ns: u64,
    /// Not before this may all be tried.
    pub more_ns: u64,
    /// Not before this may one more be tried.
    pub one_ns: u64,
    /// How long to wait after a trial to fewer that did not help.
    pub fewer_wait_ns: u64,
    /// The same for more.
    pub more_wait_ns: u64,
    /// What was wanted of each vCPU in use when fewer were tried last.
    pub tried_wanted_m: u32,
    /// What was spun then.
    pub tried_spin_m: u32,
    /// What waited when all were tried last.
    pub tried_queued_m: u32,
    /// What woke then.
    pub tried_wakes: u32,
    /// Trials to fewer.
    pub trials_fewer: u64,
    /// Those that helped.
    pub helped_fewer: u64,
    /// Trials to more.
    pub trials_more: u64,
    /// Those that helped.
    pub helped_more: u64,
}

/// Time between two decisions, nanoseconds.
pub const WINDOW_NS: u64 = 25_000_000;

// SAFETY: of every call below: the functions read and write nothing but what they
// are given by reference, and each struct has the C one's fields in its order.
unsafe extern "C" {
    fn pack_step(pack: *mut Pack, facts: *const Facts, now_ns: u64) -> u32;
    fn pack_use(pack: *const Pack) -> u32;
}

impl Pack {
    /// Nothing has been decided yet.
    pub fn new(vcpus: u32) -> Pack {
        Pack { vcpus, ..Pack::default() }
    }

    /// A window has passed; how many vCPUs to use from now on.
    pub fn step(&mut self, facts: &Facts, now_ns: u64) -> u32 {
        // SAFETY: see above.
        unsafe { pack_step(self, facts, now_ns) }
    }

    /// How many are in use.
    pub fn in_use(&self) -> u32 {
        // SAFETY: see above.
        unsafe { pack_use(self) }
    }
}
