//! The time from an event to the run of the thread that waited for it, on an idle CPU.

use std::hint::spin_loop;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::os::{futex_wait, futex_wake, now_ns, spin_until};
use crate::peer::beside;
use crate::sample::Samples;

/// Time within which a CPU with nothing to run halts, in nanoseconds.
const SETTLE_NS: u64 = 100_000;
/// Length of the sleep before a timer's deadline, in nanoseconds.
const SLEEP_NS: u64 = 100_000;
/// The word's value that ends the sleeper.
const STOP: u32 = u32::MAX;

/// The state that waker and sleeper share.
#[derive(Default)]
struct Shared {
    /// The futex word. The sleeper sleeps while the word has the number of its sleep.
    word: AtomicU32,
    /// Number of the sleep that begins, from 1 on. The sleeper writes it.
    asleep: AtomicU32,
    /// The time at which the sleeper ran again. The sleeper writes it before `asleep`.
    woke_ns: AtomicU64,
}

/// Measures the time from FUTEX_WAKE to the woken thread on a halted CPU, including the call's
/// entry.
pub fn by_futex(cpu: usize) -> io::Result<Samples> {
    let shared = Shared::default();
    let measure = || {
        let samples = Samples::take(300, || {
            loop {
                if let Some(latency_ns) = shared.wake_once() {
                    return Ok(latency_ns as f64);
                }
            }
        });
        shared.word.store(STOP, Ordering::Release);
        futex_wake(&shared.word);
        samples
    };
    Ok(beside(cpu, || shared.sleep(), measure)?.0)
}

impl Shared {
    /// Runs the sleeping thread.
    fn sleep(&self) -> io::Result<()> {
        for turn in 0.. {
            self.asleep.store(turn + 1, Ordering::Release);
            while self.word.load(Ordering::Acquire) == turn {
                futex_wait(&self.word, turn);
            }
            self.woke_ns.store(now_ns(), Ordering::Release);
            if self.word.load(Ordering::Acquire) == STOP {
                break;
            }
        }
        Ok(())
    }

    /// Wakes the sleeper once. Returns `None` if it did not sleep yet.
    fn wake_once(&self) -> Option<u64> {
        let turn = self.word.load(Ordering::Relaxed);
        self.await_sleep(turn + 1);
        spin_until(now_ns() + SETTLE_NS);
        let start = now_ns();
        self.word.store(turn + 1, Ordering::Release);
        let slept = futex_wake(&self.word);
        self.await_sleep(turn + 2);
        slept.then(|| self.woke_ns.load(Ordering::Acquire).saturating_sub(start))
    }

    fn await_sleep(&self, number: u32) {
        while self.asleep.load(Ordering::Acquire) != number {
            spin_loop();
        }
    }
}

/// Measures how much later than its deadline a sleeping thread runs if its CPU was halted.
pub fn by_timer() -> io::Result<Samples> {
    Samples::take(200, || {
        let deadline = now_ns() + SLEEP_NS;
        sleep_until(deadline)?;
        Ok((now_ns() - deadline) as f64)
    })
}

fn sleep_until(deadline_ns: u64) -> io::Result<()> {
    let deadline = libc::timespec {
        tv_sec: (deadline_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (deadline_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the deadline outlives the call; an absolute sleep leaves no remainder to write.
    let error = unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &deadline,
            ptr::null_mut(),
        )
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}
