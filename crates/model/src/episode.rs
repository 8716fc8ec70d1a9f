//! Spins and why they lasted.

use serde::{Deserialize, Serialize};

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// A kernel spinlock, reader-writer spinlocks included.
    Spinlock,
    /// A kernel mutex.
    Mutex,
    /// A kernel reader-writer semaphore.
    Rwsem,
    /// A mutex of glibc.
    Futex,
    /// The acknowledgement of an inter-processor call, such as a TLB shootdown.
    Ipi,
}

impl Wait {
    /// Its name in files and figures.
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

/// The one who is waited for, as the guest's kernel saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Its thread id.
    pub tid: u32,
    /// The vCPU that it ran on last.
    pub vcpu: u16,
    /// What it did.
    pub state: OwnerState,
    /// Nanoseconds during a wait that slept in which it wanted to run and the guest's
    /// scheduler let others run; 0 where that is not known.
    pub delay_ns: u64,
}

/// What an owner did when the wait began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerState {
    /// The guest's scheduler let it run.
    Running,
    /// It wanted to run, and the guest's scheduler let others run.
    Runnable,
    /// It waited for something else.
    Asleep,
}

/// Somebody took the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The vCPU that took it.
    pub vcpu: u16,
    /// When.
    pub t_ns: u64,
}

/// A wait. Where it did not sleep, it is a spin: its vCPU did nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spin {
    /// What for.
    pub wait: Wait,
    /// The lock's address; 0 for none.
    pub lock: u64,
    /// It slept, and burned nothing.
    pub asleep: bool,
    /// The vCPU that spun; of one that slept, the one where it went on.
    pub vcpu: u16,
    /// The thread that waited; 0 is the idle task.
    pub tid: u32,
    /// Begin, nanoseconds of the guest's CLOCK_MONOTONIC.
    pub begin_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Nanoseconds of a spin that its vCPU was halted, until its turn at a PV spinlock: they
    /// burned nothing.
    pub halted_ns: u64,
    /// The lock's owner when the wait began.
    pub owner: Option<Owner>,
    /// A spinlock: who took it last before this one did, of those who had to wait for it.
    pub before: Option<Taken>,
    /// The function that wanted it; empty where that is not known.
    pub site: String,
}

/// Why a spin lasted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The lock's holder was off: lock-holder preemption.
    HolderOff,
    /// One who waited in front was off: lock-waiter preemption.
    WaiterOff,
    /// A vCPU that had to acknowledge was off.
    IpiOff,
    /// The holder was runnable, but the guest's own scheduler let another one run.
    HolderPreempted,
    /// Nobody was off: the lock is contended, and no cure for vCPUs will mend that.
    Plain,
}

impl Cause {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Cause> {
        std::iter::successors(Some(Cause::HolderOff), |cause| cause.next())
    }

    /// The one after it; a new one has to be given its place here.
    fn next(self) -> Option<Cause> {
        match self {
            Cause::HolderOff => Some(Cause::WaiterOff),
            Cause::WaiterOff => Some(Cause::IpiOff),
            Cause::IpiOff => Some(Cause::HolderPreempted),
            Cause::HolderPreempted => Some(Cause::Plain),
            Cause::Plain => None,
        }
    }

    /// Whether a vCPU that was off is the cause.
    pub fn by_off(self) -> bool {
        matches!(self, Cause::HolderOff | Cause::WaiterOff | Cause::IpiOff)
    }

    /// Its name in files and figures.
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
    /// Why it lasted.
    pub cause: Cause,
    /// How sure that is, from 0 to 1.
    pub confidence: f64,
    /// The vCPU that was waited for, where it is known.
    pub waits_for: Option<u16>,
    /// Nanoseconds that it burned for that cause, or was kept waiting for it asleep or halted;
    /// for [`Cause::Plain`], all of it. What the spinner itself was off is not in it.
    pub wasted_ns: u64,
    /// Those of them that it was asleep or halted.
    pub blocked_ns: u64,
}

impl Episode {
    /// Nanoseconds that it burned.
    pub fn burned_ns(&self) -> u64 {
        self.wasted_ns - self.blocked_ns
    }
}
