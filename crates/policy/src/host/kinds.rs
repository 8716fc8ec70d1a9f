//! A host's size, tunables and states, with the numbers that the C side gives them.

/// Which scheduler the host runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduler {
    /// As of Linux 6.6 to 6.12.
    Eevdf,
    /// As of Linux 5.6.
    Cfs,
}

/// How a directed yield treats a target that has had more than its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Debooster {
    /// Nothing: mainline.
    Off,
    /// The yielder's virtual time rises.
    Penalty,
    /// The yielder's forfeit goes to the target.
    Transfer,
    /// The target's virtual time falls.
    Credit,
}

/// The host's size and tunables; zeros are the kernel's defaults.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// At least 1.
    pub pcpus: u32,
    /// Which scheduler.
    pub scheduler: Scheduler,
    /// Which cure for ignored yields.
    pub debooster: Debooster,
    /// Bits of `enum host_feature` to turn off.
    pub no_features: u32,
    /// A thread in a critical section gets a tick more.
    pub extend: bool,
    /// Time between two ticks.
    pub tick_ns: u64,
    /// EEVDF's base slice, or CFS's minimum granularity.
    pub slice_ns: u64,
    /// The first tick.
    pub phase_ns: u64,
}

impl Config {
    /// The kernel's defaults.
    pub fn new(pcpus: u32, scheduler: Scheduler) -> Config {
        let debooster = Debooster::Off;
        Config {
            pcpus,
            scheduler,
            debooster,
            no_features: 0,
            extend: false,
            tick_ns: 0,
            slice_ns: 0,
            phase_ns: 0,
        }
    }
}

/// A thread's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It halts.
    Blocked,
    /// It wants to run and is off.
    Queued,
    /// It runs.
    On,
}

/// The outcome of a directed yield.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Yield {
    /// The yielder gives way, and the target is the next buddy.
    Yielded,
    /// The target halts.
    NotQueued,
    /// The target runs.
    Running,
    /// Both are alone on their pCPUs.
    Refused,
    /// The target is throttled.
    Throttled,
}

/// How often a target was made eligible, was so anyway, or stayed ineligible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gifts {
    /// Made eligible.
    pub made: u64,
    /// Eligible anyway.
    pub unneeded: u64,
    /// Still not eligible.
    pub refused: u64,
}
