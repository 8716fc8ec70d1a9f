//! Keeps the emulated CPUs of an L1 alive.
//!
//! When QEMU's SVM emulation enters and leaves a guest, it changes the CPU's set of pending
//! interrupts without a lock (`cs->interrupt_request |= ...` in
//! target/i386/tcg/sysemu/svm_helper.c). The CPU loses an interrupt that another thread raises at
//! that moment, although the local APIC still has it pending. If that was the one-shot timer, the
//! CPU has no timer from then on. Any further interrupt also delivers the pending one. So a thread
//! on each CPU regularly wakes a real-time thread on the next CPU: the wake-up is such an
//! interrupt.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use nix::libc;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

const PERIOD: Duration = Duration::from_millis(25);

/// Starts the threads of each CPU; they run until the machine stops.
pub fn start(cpus: usize) {
    let (senders, receivers): (Vec<Sender<()>>, Vec<Receiver<()>>) =
        (0..cpus).map(|_| channel()).unzip();
    for (cpu, beats) in receivers.into_iter().enumerate() {
        let next = senders[(cpu + 1) % cpus].clone();
        std::thread::spawn(move || {
            become_urgent_on(cpu);
            beats.iter().for_each(drop);
        });
        std::thread::spawn(move || {
            become_urgent_on(cpu);
            while next.send(()).is_ok() {
                std::thread::sleep(PERIOD);
            }
        });
    }
}

/// Pins this thread to a CPU, ahead of all normal threads. If that fails, the heartbeat still
/// beats, but later.
fn become_urgent_on(cpu: usize) {
    let mut set = CpuSet::new();
    let _ = set.set(cpu);
    let _ = sched_setaffinity(Pid::from_raw(0), &set);
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: the pointer is to a live sched_param; pid 0 is this thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
}
