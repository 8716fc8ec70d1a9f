//! CLOCK_MONOTONIC, the clock of all alignment here.

use nix::time::{ClockId, clock_gettime};

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
