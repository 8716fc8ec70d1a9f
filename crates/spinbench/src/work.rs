//! Work of a known length, made of a calibrated loop.
//!
//! A loop count is fixed work: a thread whose vCPU goes off meanwhile still has the rest to do. A
//! clock read would count the time off as work done.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Loops in one calibration sample: some 10 us on hardware, some 20 us under emulation. The samples
/// are so short that many of them are not preempted.
const SAMPLE_LOOPS: u64 = 10_000;

/// The time for samples. Only the fastest counts, because preemption, interrupts and a busy sibling
/// hyper-thread only ever add time.
const CALIBRATION: Duration = Duration::from_millis(50);

/// Multiplier of Knuth's MMIX generator (The Art of Computer Programming 2, 3.3.4). The loop is a
/// chain of dependent multiplications, which no CPU can run in parallel. The shift between them
/// keeps compilers from combining several. The chain stays in registers: through memory, an
/// emulated loop took twice as long in one process as in the next.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;

/// Runs the loop `loops` times.
#[inline]
pub fn run(loops: u64) {
    let mut x = black_box(loops);
    for _ in 0..loops {
        x = (x ^ (x >> 32)).wrapping_mul(MULTIPLIER);
    }
    black_box(x);
}

/// Returns the length of one loop on an undisturbed CPU, in nanoseconds.
pub fn calibrate() -> f64 {
    let begin = Instant::now();
    let mut fastest_ns = f64::INFINITY;
    while begin.elapsed() < CALIBRATION {
        let start = Instant::now();
        run(black_box(SAMPLE_LOOPS));
        fastest_ns = fastest_ns.min(start.elapsed().as_nanos() as f64);
    }
    // The length is never 0, even if the clock is coarse.
    (fastest_ns / SAMPLE_LOOPS as f64).max(1e-3)
}

/// Returns how many loops last `ns` nanoseconds: at least one, unless `ns` is 0.
pub fn loops(ns: u64, loop_ns: f64) -> u64 {
    match ns {
        0 => 0,
        ns => ((ns as f64 / loop_ns).round() as u64).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_round_and_never_vanish() {
        assert_eq!(loops(0, 2.0), 0);
        assert_eq!(loops(1, 100.0), 1);
        assert_eq!(loops(1000, 2.0), 500);
    }

    #[test]
    fn the_loop_is_not_optimised_away() {
        let per_loop_ns = calibrate();
        assert!(per_loop_ns > 0.05, "{per_loop_ns} ns is less than a multiplication takes");
    }
}
