//! Work of a known length, made of a calibrated loop.
//!
//! A loop count is fixed work: a thread whose vCPU goes off in between still has
//! the rest to do. A clock read would count the time off as work done.

use std::hint::black_box;
use std::time::Instant;

/// Loops in one calibration sample: some 100 us on hardware, some ms under emulation.
const SAMPLE_LOOPS: u64 = 100_000;

/// Calibration samples. The fastest counts: preemption only ever adds time.
const SAMPLES: u32 = 15;

/// Multiplier of Knuth's MMIX generator (The Art of Computer Programming 2, 3.3.4):
/// a chain of dependent multiplications, which nothing can run in parallel.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;

/// Runs the loop so many times.
#[inline]
pub fn run(loops: u64) {
    let mut x = loops;
    for _ in 0..loops {
        x = black_box(x.wrapping_mul(MULTIPLIER).wrapping_add(1));
    }
    black_box(x);
}

/// The length of one loop on an undisturbed CPU, in nanoseconds.
pub fn calibrate() -> f64 {
    let sample = |_| {
        let start = Instant::now();
        run(black_box(SAMPLE_LOOPS));
        start.elapsed().as_nanos() as f64 / SAMPLE_LOOPS as f64
    };
    // Never 0, also where the clock is coarse.
    (0..SAMPLES).map(sample).fold(f64::INFINITY, f64::min).max(1e-3)
}

/// How many loops last `ns` nanoseconds: at least one, unless it is for no work.
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
