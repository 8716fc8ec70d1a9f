//! Spins and why they lasted.

use serde::{Deserialize, Serialize};

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// A kernel spinlock, reader-writer spinlocks included.
    Spinlock,
    /// A kernel mutex, by optimistic spinning.
    Mutex,
    /// The acknowledgement of an inter-processor call, such as a TLB shootdown.
    Ipi,
}

/// The one who is waited for, as the guest's kernel saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Its thread id.
    pub tid: u32,
    /// The vCPU that it ran on last.
    pub vcpu: u16,
    /// Whether the guest's scheduler let it run.
    pub running: bool,
}

/// Somebody took the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The vCPU that took it.
    pub vcpu: u16,
    /// When.
    pub t_ns: u64,
}

/// A spin: a vCPU that waited without doing anything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spin {
    /// What for.
    pub wait: Wait,
    /// The lock's address; 0 for none.
    pub lock: u64,
    /// The vCPU that spun.
    pub vcpu: u16,
    /// The thread that spun; 0 is the idle task.
    pub tid: u32,
    /// Begin, nanoseconds of the guest's CLOCK_MONOTONIC.
    pub begin_ns: u64,
    /// End.
    pub end_ns: u64,
    /// A mutex: its owner when the spin began.
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

/// A spin with its cause.
#[derive(Debug, Clone, PartialEq)]
pub struct Episode {
    /// The spin.
    pub spin: Spin,
    /// Why it lasted.
    pub cause: Cause,
    /// How sure that is, from 0 to 1.
    pub confidence: f64,
    /// Nanoseconds that it burned for that cause; for [`Cause::Plain`], all of the spin.
    /// What the spinner itself was off is not in it.
    pub wasted_ns: u64,
}
