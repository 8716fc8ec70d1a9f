//! Measures the cost of a context switch here: two threads on one vCPU yield to each other.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

use super::priority::run_first;

/// The cost in nanoseconds if it cannot be measured: the value of lmbench on current hardware.
const USUAL_NS: u64 = 1_500;
/// The range of plausible measurements: emulation is slow, and no machine is faster.
const POSSIBLE_NS: std::ops::RangeInclusive<u64> = 200..=20_000;
/// The number of rounds. The fastest one counts, because the host may preempt the vCPU.
const ROUNDS: u32 = 10;
const YIELDS: u32 = 20;

/// Instructions of a counted wait (experiment vt-counting), and of a context switch as
/// [`switch_ns`] measures it in virtual time, both with Linux 7.3.
const COUNTED: u64 = 900;
const SWITCH: u64 = 1_980;

/// Returns the nanoseconds by which counting makes a contended wait longer, given those of a
/// context switch.
pub(super) fn counted_ns(switch_ns: u64) -> u64 {
    switch_ns * COUNTED / SWITCH
}

/// Returns the nanoseconds that a context switch takes, including the system call of a yield. The
/// measurement takes a millisecond.
pub(super) fn switch_ns() -> u64 {
    let measured = sched_getcpu().ok().and_then(on);
    measured.filter(|ns| POSSIBLE_NS.contains(ns)).unwrap_or(USUAL_NS)
}

fn on(vcpu: usize) -> Option<u64> {
    let (ready, over) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let holds = hold_to(vcpu);
            ready.wait();
            while holds && !over.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        });
        let one = scope.spawn(|| {
            let holds = hold_to(vcpu);
            ready.wait();
            let least = holds.then(|| (0..ROUNDS).map(|_| round_ns()).min());
            over.store(true, Ordering::Relaxed);
            least.flatten()
        });
        let least = one.join().ok()?;
        other.join().ok()?;
        least
    })
}

/// Pins this thread to a vCPU with a higher priority than all ordinary tasks there, so that it
/// yields only to the other thread.
fn hold_to(vcpu: usize) -> bool {
    let mut set = CpuSet::new();
    set.set(vcpu).is_ok()
        && sched_setaffinity(Pid::from_raw(0), &set).is_ok()
        && run_first().is_ok()
}

/// Returns the nanoseconds per context switch in one round. Each yield takes two switches: to the
/// other thread and back.
fn round_ns() -> u64 {
    let began = Instant::now();
    (0..YIELDS).for_each(|_| thread::yield_now());
    began.elapsed().as_nanos() as u64 / u64::from(2 * YIELDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counted_wait_takes_half_of_a_switch() {
        assert_eq!(counted_ns(1_980), 900);
        assert_eq!(counted_ns(USUAL_NS), 681);
    }

    #[test]
    fn a_switch_takes_time() {
        assert!(POSSIBLE_NS.contains(&USUAL_NS));
        let measured = thread::spawn(|| run_first().is_ok().then(|| on(sched_getcpu().unwrap())));
        let Some(measured) = measured.join().unwrap() else {
            eprintln!("skipped: nothing is measured without the right to a real-time priority");
            return;
        };
        assert!(measured.is_some_and(|ns| ns > 0), "{measured:?}");
    }
}
