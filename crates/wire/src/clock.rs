//! CLOCK_MONOTONIC, the clock of all alignment here, and the time stamp counter, which a
//! guest's KVM shifts by a known offset.

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Readings that a [`Moment`] is the closest of.
const READINGS: u32 = 16;

/// Both clocks at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub mono_ns: u64,
    /// The time stamp counter, ticks.
    pub tsc: u64,
    /// How far the two may be apart, nanoseconds.
    pub error_ns: u64,
}

impl Moment {
    /// Now.
    pub fn now() -> Moment {
        let readings = (0..READINGS).map(|_| {
            let before = mono_ns();
            // SAFETY: reads a register; every x86-64 CPU has it.
            let tsc = unsafe { std::arch::x86_64::_rdtsc() };
            let after = mono_ns();
            Moment { mono_ns: before.midpoint(after), tsc, error_ns: (after - before).div_ceil(2) }
        });
        readings.min_by_key(|moment| moment.error_ns).expect("READINGS is not 0")
    }
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn mono_ns() -> u64 {
    let now =
        clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap_or(nix::sys::time::TimeSpec::new(0, 0));
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// CPU seconds that this process has used, all threads.
pub fn process_cpu_s() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .unwrap_or(nix::sys::time::TimeSpec::new(0, 0));
    now.tv_sec() as f64 + now.tv_nsec() as f64 / 1e9
}
