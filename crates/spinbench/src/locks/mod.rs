//! The locks, one algorithm per file, behind one trait without dynamic calls.
//!
//! # How a run ends
//! Under overcommit, a FIFO lock passes to a waiter whose vCPU is off, and threads still queue at
//! the end of the run. So waiters check a stop flag while they wait, and give up. A waiter that
//! gives up keeps its place in the queue and never passes the lock on, so every waiter behind it
//! can only give up as well. That keeps exclusion (no thread enters out of turn) and costs the
//! holder's path nothing. It leaves the lock unusable, which is right at the end of the lock's only
//! run. The flag is written once, so each read of it hits the waiter's own cache.

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
    /// A thread's own data for the lock: MCS's queue node, and nothing for the other locks.
    type Node: Default + Send + Sync;

    /// Whether the lock excludes. If false, the critical section must not write shared data.
    const EXCLUDES: bool = true;

    /// Takes the lock. Returns true once the lock is held. Returns false if `stop` was set during
    /// the wait: the lock is then not held, and neither it nor the node may be used again.
    ///
    /// # Safety
    /// The calling thread must not hold the lock. `node` must belong to this thread alone, and must
    /// outlive every other thread's use of the lock.
    unsafe fn lock(&self, node: &Self::Node, stop: &AtomicBool) -> bool;

    /// Releases the lock.
    ///
    /// # Safety
    /// The calling thread must hold the lock, and must have taken it with this `node`.
    unsafe fn unlock(&self, node: &Self::Node);
}

/// The locks, by their names on the command line.
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

/// A value on cache lines of its own. They have 128 bytes, because the adjacent-line prefetcher of
/// x86 fetches lines in pairs.
#[derive(Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

/// Spins until `done` returns true. Returns false if `stop` is set first.
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
