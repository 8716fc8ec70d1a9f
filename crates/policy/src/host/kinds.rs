//! A host's size, tunables and states, with the numbers that the C side gives them.

/// The scheduler that the host runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduler {
    /// EEVDF, as in Linux 6.6 to 6.12.
    Eevdf,
    /// CFS, as in Linux 5.6.
    Cfs,
}

/// How a directed yield treats a target that has had more than its share of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Debooster {
    /// It does nothing, as mainline Linux.
    Off,
    /// It raises the yielder's virtual time.
    Penalty,
    /// It transfers the yielder's forfeit to the target.
    Transfer,
    /// It lowers the target's virtual time.
    Credit,
}

/// The host's size and tunables; a zero is the kernel's default.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// The number of pCPUs, at least 1.
    pub pcpus: u32,
    /// The host's scheduler.
    pub scheduler: Scheduler,
    /// The remedy for ignored yields.
    pub debooster: Debooster,
    /// The scheduler features to turn off: bits of `enum host_feature`.
    pub no_features: u32,
    /// Whether a thread in a critical section gets one more tick.
    pub extend: bool,
    /// The time between two ticks, in nanoseconds.
    pub tick_ns: u64,
    /// EEVDF's base slice or CFS's minimum granularity, in nanoseconds.
    pub slice_ns: u64,
    /// The time of the first tick, in nanoseconds.
    pub phase_ns: u64,
}

impl Config {
    /// Returns the kernel's defaults.
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
    /// The thread halts.
    Blocked,
    /// The thread wants to run and is off.
    Queued,
    /// The thread runs.
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
    /// Both threads are alone on their pCPUs.
    Refused,
    /// The target is throttled.
    Throttled,
}

/// How often a yield to a target made it eligible, found it eligible, or left it ineligible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gifts {
    /// Yields that made the target eligible.
    pub made: u64,
    /// Yields to a target that was eligible anyway.
    pub unneeded: u64,
    /// Yields after which the target was still ineligible.
    pub refused: u64,
}
