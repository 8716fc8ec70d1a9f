//! Takes a pCPU away for known intervals. A SCHED_FIFO thread on the pCPU spins for the requested
//! length, and notes when it began and ended. Linux runs it before every normal thread, so a vCPU
//! pinned to that pCPU is off meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use unspin_model::FailureKind;

use unspin_wire::clock::mono_ns;
use unspin_wire::{Failure, Injection};

/// The interval at which the pausing injector checks whether it must stop.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// An interval that the injector took away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Injected {
    /// The injector's thread.
    pub tid: i32,
    /// The pCPU of the interval.
    pub pcpu: u32,
    /// The requested length in nanoseconds.
    pub asked_ns: u64,
    /// The time at which the injector began, in host CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// The time at which it ended, in host CLOCK_MONOTONIC nanoseconds.
    pub end_ns: u64,
}

/// A running injector.
pub struct Injector {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Injected>, String>>,
}

impl Injector {
    /// Starts an injector that takes the pCPU away.
    pub fn start(plan: Injection) -> Result<Injector, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, (ready, is_ready)) = (stop.clone(), std::sync::mpsc::channel());
        let thread = std::thread::spawn(move || {
            let set_up = become_fifo(plan.pcpu);
            let _ = ready.send(set_up.clone());
            set_up?;
            Ok(inject(&plan, &flag))
        });
        match is_ready.recv() {
            Ok(Ok(())) => Ok(Injector { stop, thread }),
            Ok(Err(error)) => Err(Failure::new(FailureKind::Unavailable, error)),
            Err(_) => Err(Failure::new(FailureKind::Unavailable, "the injector ended at once")),
        }
    }

    /// Stops the injector, and returns the intervals that it took.
    pub fn stop(self) -> Vec<Injected> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok().and_then(Result::ok).unwrap_or_default()
    }
}

fn inject(plan: &Injection, stop: &AtomicBool) -> Vec<Injected> {
    let tid = nix::unistd::gettid().as_raw();
    let mut done = Vec::new();
    pause(Duration::from_millis(plan.after_ms), stop);
    for number in 0..plan.count as usize {
        pause(Duration::from_micros(plan.gap_us), stop);
        if stop.load(Ordering::Relaxed) || plan.lengths_us.is_empty() {
            break;
        }
        let asked_ns = plan.lengths_us[number % plan.lengths_us.len()] * 1_000;
        let start_ns = mono_ns();
        let mut end_ns = start_ns;
        while end_ns < start_ns + asked_ns {
            std::hint::spin_loop();
            end_ns = mono_ns();
        }
        done.push(Injected { tid, pcpu: plan.pcpu, asked_ns, start_ns, end_ns });
    }
    done
}

/// Sleeps for `length`, or until the injector must stop.
fn pause(length: Duration, stop: &AtomicBool) {
    let began = Instant::now();
    while let Some(left) = length.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep(left.min(LOOK_AGAIN));
    }
}

fn become_fifo(pcpu: u32) -> Result<(), String> {
    let mut set = CpuSet::new();
    set.set(pcpu as usize).map_err(|e| format!("injector on pCPU {pcpu}: {e}"))?;
    sched_setaffinity(Pid::from_raw(0), &set)
        .map_err(|e| format!("injector on pCPU {pcpu}: {e}"))?;
    let param = nix::libc::sched_param { sched_priority: 50 };
    // SAFETY: the pointer is to a live sched_param; pid 0 is this thread.
    let result =
        unsafe { nix::libc::sched_setscheduler(0, nix::libc::SCHED_FIFO, &raw const param) };
    if result != 0 {
        let error = std::io::Error::last_os_error();
        return Err(format!(
            "the injector needs SCHED_FIFO, that is root or CAP_SYS_NICE: {error}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stops_while_it_pauses() {
        let hour = 3_600_000;
        for (after_ms, gap_us) in [(hour, 0), (0, hour * 1_000)] {
            let lengths_us = vec![1];
            let plan = Injection { pcpu: 0, lengths_us, gap_us, after_ms, count: u32::MAX };
            let stop = AtomicBool::new(false);
            let done = std::thread::scope(|scope| {
                let injecting = scope.spawn(|| inject(&plan, &stop));
                std::thread::sleep(LOOK_AGAIN * 2);
                stop.store(true, Ordering::Relaxed);
                injecting.join().unwrap()
            });
            assert!(done.is_empty());
        }
    }
}
