//! Spins, and why they lasted.

use serde::{Deserialize, Serialize};

/// Object of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// A kernel spinlock, reader-writer spinlocks included.
    Spinlock,
    /// A kernel mutex.
    Mutex,
    /// A kernel reader-writer semaphore.
    Rwsem,
    /// A glibc mutex.
    Futex,
    /// The acknowledgement of an inter-processor call, such as a TLB shootdown.
    Ipi,
}

impl Wait {
    /// Returns the name in files and figures.
    pub fn name(self) -> &'static str {
        match self {
            Wait::Spinlock => "spinlock",
            Wait::Mutex => "mutex",
            Wait::Rwsem => "rwsem",
            Wait::Futex => "futex",
            Wait::Ipi => "ipi",
        }
    }
}

/// Owner of the lock, as the guest's kernel saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Id of the owner's thread.
    pub tid: u32,
    /// The vCPU that the owner ran on last.
    pub vcpu: u16,
    /// State of the owner when the wait began.
    pub state: OwnerState,
    /// Nanoseconds of a wait that slept for which the owner was runnable while the guest's
    /// scheduler ran other threads; 0 if not known.
    pub delay_ns: u64,
}

/// State of an owner when the wait began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerState {
    /// The guest's scheduler let the owner run.
    Running,
    /// The owner was runnable, and the guest's scheduler let others run.
    Runnable,
    /// The owner waited for something else.
    Asleep,
}

/// The taking of a lock by a vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The vCPU that took the lock.
    pub vcpu: u16,
    /// Time at which it took the lock, nanoseconds of the guest's CLOCK_MONOTONIC.
    pub t_ns: u64,
}

/// A wait. If the thread did not sleep, the wait is a spin: its vCPU did nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spin {
    /// Object of the wait.
    pub wait: Wait,
    /// Address of the lock; 0 for none.
    pub lock: u64,
    /// Whether the thread slept, and burned nothing.
    pub asleep: bool,
    /// The vCPU that spun; for a wait that slept, the vCPU on which the thread went on.
    pub vcpu: u16,
    /// The thread that waited; 0 is the idle task.
    pub tid: u32,
    /// Begin, nanoseconds of the guest's CLOCK_MONOTONIC.
    pub begin_ns: u64,
    /// End, nanoseconds of the guest's CLOCK_MONOTONIC.
    pub end_ns: u64,
    /// Nanoseconds of a spin for which its vCPU was halted, until its turn at a PV spinlock. They
    /// burned nothing.
    pub halted_ns: u64,
    /// The lock's owner when the wait began.
    pub owner: Option<Owner>,
    /// For a spinlock, the last of the vCPUs that had to wait for it to take it before this one
    /// did.
    pub before: Option<Taken>,
    /// Function that requested the lock; empty if not known.
    pub site: String,
}

/// Why a spin lasted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The holder of the lock was off: lock-holder preemption.
    HolderOff,
    /// A waiter in front was off: lock-waiter preemption.
    WaiterOff,
    /// A vCPU that had to acknowledge was off.
    IpiOff,
    /// The holder was runnable, but the guest's own scheduler ran another thread.
    HolderPreempted,
    /// No vCPU was off: the lock is contended, which no measure against vCPU preemption can cure.
    Plain,
}

impl Cause {
    /// Returns all causes.
    pub fn all() -> impl Iterator<Item = Cause> {
        std::iter::successors(Some(Cause::HolderOff), |cause| cause.next())
    }

    /// Returns the cause after this one; each new cause needs its place here.
    fn next(self) -> Option<Cause> {
        match self {
            Cause::HolderOff => Some(Cause::WaiterOff),
            Cause::WaiterOff => Some(Cause::IpiOff),
            Cause::IpiOff => Some(Cause::HolderPreempted),
            Cause::HolderPreempted => Some(Cause::Plain),
            Cause::Plain => None,
        }
    }

    /// Returns whether the cause is a vCPU that was off.
    pub fn by_off(self) -> bool {
        matches!(self, Cause::HolderOff | Cause::WaiterOff | Cause::IpiOff)
    }

    /// Returns the name in files and figures.
    pub fn name(self) -> &'static str {
        match self {
            Cause::HolderOff => "holder-off",
            Cause::WaiterOff => "waiter-off",
            Cause::IpiOff => "ipi-off",
            Cause::HolderPreempted => "holder-preempted",
            Cause::Plain => "plain",
        }
    }
}

/// A spin with its cause.
#[derive(Debug, Clone, PartialEq)]
pub struct Episode {
    /// The spin.
    pub spin: Spin,
    /// Why the spin lasted.
    pub cause: Cause,
    /// Confidence in the cause, from 0 to 1.
    pub confidence: f64,
    /// The vCPU that the spin waited for, if known.
    pub waits_for: Option<u16>,
    /// Nanoseconds that the spin burned, or waited asleep or halted, for that cause; for
    /// [`Cause::Plain`], all of it. The spinner's own off time is left out.
    pub wasted_ns: u64,
    /// Nanoseconds of `wasted_ns` spent asleep or halted.
    pub blocked_ns: u64,
}

impl Episode {
    /// Returns the nanoseconds that the spin burned.
    pub fn burned_ns(&self) -> u64 {
        self.wasted_ns - self.blocked_ns
    }
}
