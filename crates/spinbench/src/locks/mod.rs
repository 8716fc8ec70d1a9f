//! The locks, one algorithm a file, behind one trait without dynamic calls.
//!
//! # How a run ends
//! Under overcommit a FIFO lock hands itself to a waiter whose vCPU is off, and at
//! the end of the run a line of threads still waits. So waiters look at a stop flag
//! while they wait, and give up. One that gives up keeps its place in the line and will
//! never pass the lock on: everybody behind it can only give up as well. That keeps
//! exclusion (nobody enters out of turn), costs the holder's path nothing, and leaves
//! the lock unusable, which is right at the end of its only run. The flag is written once,
//! so reading it is a hit in the waiter's own cache.

mod mcs;
mod none;
mod pthread_mutex;
mod pthread_spin;
mod tas;
mod ticket;
mod ttas;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};

pub use mcs::Mcs;
pub use none::NoLock;
pub use pthread_mutex::PthreadMutex;
pub use pthread_spin::PthreadSpin;
pub use tas::Tas;
pub use ticket::Ticket;
pub use ttas::Ttas;

/// A lock as the benchmark uses it.
pub trait RawLock: Default + Send + Sync {
    /// What each thread brings to the lock: MCS's queue node, nothing for the others.
    type Node: Default + Send + Sync;

    /// False for the absence of a lock: nothing may be written inside it.
    const EXCLUDES: bool = true;

    /// Takes the lock; true once it is held. False when `stop` was set while waiting:
    /// the lock is not held, and neither it nor the node may be used again.
    ///
    /// # Safety
    /// The lock must not be held by this thread. `node` must belong to this thread alone
    /// and must outlive every other thread's use of the lock.
    unsafe fn lock(&self, node: &Self::Node, stop: &AtomicBool) -> bool;

    /// Gives the lock back.
    ///
    /// # Safety
    /// The lock must be held by this thread, taken with this `node`.
    unsafe fn unlock(&self, node: &Self::Node);
}

/// The names on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// FIFO ticket lock
    Ticket,
    /// Test-and-set lock
    Tas,
    /// Test-and-test-and-set lock
    Ttas,
    /// FIFO queue lock of Mellor-Crummey and Scott
    Mcs,
    /// glibc's pthread_spinlock_t
    PthreadSpin,
    /// glibc's pthread_mutex_t
    PthreadMutex,
    /// No lock: each thread only burns CPU
    None,
}

/// Keeps what is inside on cache lines of its own: 128 bytes, because the adjacent-line
/// prefetcher of x86 fetches lines in pairs.
#[derive(Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

/// Spins until `done`; false when `stop` came first.
#[inline]
fn spin_until(stop: &AtomicBool, mut done: impl FnMut() -> bool) -> bool {
    while !done() {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}
