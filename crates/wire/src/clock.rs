//! CLOCK_MONOTONIC, which all alignment here is based on, and the time stamp counter, which a
//! guest's KVM shifts by a known offset.

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Number of readings of which a [`Moment`] is the closest.
const READINGS: u32 = 16;

/// A reading of both clocks at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// CLOCK_MONOTONIC in nanoseconds.
    pub mono_ns: u64,
    /// Time stamp counter in ticks.
    pub tsc: u64,
    /// Bound on the distance between the two readings in nanoseconds.
    pub error_ns: u64,
}

impl Moment {
    /// Reads both clocks now.
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

/// Returns CLOCK_MONOTONIC in nanoseconds.
pub fn mono_ns() -> u64 {
    let now =
        clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap_or(nix::sys::time::TimeSpec::new(0, 0));
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// Returns the CPU seconds that all threads of this process have used.
pub fn process_cpu_s() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .unwrap_or(nix::sys::time::TimeSpec::new(0, 0));
    now.tv_sec() as f64 + now.tv_nsec() as f64 / 1e9
}
