//! Measures how late the kernel serves timers here while their vCPU is on.

use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::sense::now_ns;

const TIMERS: usize = 48;
const PERIOD_NS: u64 = 500_000;
/// How long to wait for a timer, in nanoseconds; this thread may not get a vCPU.
const PATIENCE_NS: u64 = 20_000_000;
/// The multiple of the usual lateness from which on a vCPU counts as off.
const FACTOR: u64 = 4;
/// The least limit: now and then, the kernel itself disables interrupts for so long.
const SHORTEST_NS: u64 = 200_000;
/// The multiple of the usual lateness below which lateness proves nothing.
const FACTOR_LEAST: u64 = 2;
/// The bounds of the least lateness. In an idle guest on KVM, a limit of 20 us found a tenth of all
/// time to be off, one of 50 us nothing. A user who knows that the host's slices are longer may
/// want a millisecond anywhere.
const LEAST_NS: (u64, u64) = (50_000, 1_000_000);
/// The largest limit: a longer delay is a host's slice, not the latency of an interrupt.
const LONGEST_NS: u64 = 2_000_000;

/// Returns how late, in nanoseconds, a timer must be served to show that its vCPU was off: a
/// multiple of the usual lateness here. On a machine without other VMs that is microseconds; a
/// hypervisor that serves timers from user space, or is itself a guest, needs hundreds. Takes about
/// 30 ms.
pub(crate) fn limit_ns() -> u64 {
    limit_of(samples())
}

fn limit_of(samples: Vec<u64>) -> u64 {
    (usual_ns(samples) * FACTOR).clamp(SHORTEST_NS, LONGEST_NS)
}

/// Returns the least lateness that is significant here, in nanoseconds: below it, timers of a
/// running vCPU are as late. Takes about 30 ms.
pub(crate) fn least_ns() -> u64 {
    least_of(samples())
}

fn least_of(samples: Vec<u64>) -> u64 {
    (usual_ns(samples) * FACTOR_LEAST).clamp(LEAST_NS.0, LEAST_NS.1)
}

/// Returns the usual lateness, the lower quartile: many timers may meet an off vCPU.
fn usual_ns(mut samples: Vec<u64>) -> u64 {
    samples.sort_unstable();
    samples.get(samples.len() / 4).copied().unwrap_or_default()
}

/// Measures the lateness of some timers. Polls for the end of each without sleeping: an idle vCPU
/// is late for other reasons.
fn samples() -> Vec<u64> {
    let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
    let Ok(timer) = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags) else { return Vec::new() };
    (0..TIMERS).filter_map(|_| lateness_ns(&timer)).collect()
}

fn lateness_ns(timer: &TimerFd) -> Option<u64> {
    let due_ns = now_ns() + PERIOD_NS;
    let due = Expiration::OneShot(TimeSpec::from_duration(Duration::from_nanos(due_ns)));
    timer.set(due, TimerSetTimeFlags::TFD_TIMER_ABSTIME).ok()?;
    while timer.wait().is_err() {
        if now_ns() > due_ns + PATIENCE_NS {
            return None;
        }
    }
    Some(now_ns().saturating_sub(due_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_follows_what_is_usual_within_bounds() {
        assert_eq!(limit_of(Vec::new()), SHORTEST_NS);
        assert_eq!(limit_of(vec![3_000; 40]), SHORTEST_NS);
        let mut half_off = vec![90_000; 24];
        half_off.extend([4_000_000; 24]);
        assert_eq!(limit_of(half_off), 360_000);
        assert_eq!(limit_of(vec![5_000_000; 10]), LONGEST_NS);
    }

    #[test]
    fn a_limit_has_a_floor_that_follows_what_is_usual() {
        assert_eq!(least_of(Vec::new()), LEAST_NS.0);
        assert_eq!(least_of(vec![100_000; 40]), 200_000);
        assert_eq!(least_of(vec![5_000_000; 40]), LEAST_NS.1);
    }

    #[test]
    fn timers_are_seen() {
        assert!(!samples().is_empty());
    }
}
