//! Keeps the emulated CPUs of an L1 alive.
//!
//! QEMU's SVM emulation changes a CPU's set of pending interrupts without a lock
//! when it enters and leaves a guest (`cs->interrupt_request |= ...` in
//! target/i386/tcg/sysemu/svm_helper.c). An interrupt that another thread
//! raises in that moment is lost to the CPU, although its local APIC still has it
//! pending. If it was the one-shot timer, the CPU has no timer from then on. Any
//! further interrupt brings the pending one along. So on each CPU a thread wakes a
//! real-time thread on the next CPU now and then: the wake-up is such an interrupt.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use nix::libc;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

const PERIOD: Duration = Duration::from_millis(25);

/// Starts the threads of each CPU; they run for the rest of the machine's life.
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

/// Holds this thread to a CPU, before all normal threads. A heartbeat that fails
/// to get that still beats, only later.
fn become_urgent_on(cpu: usize) {
    let mut set = CpuSet::new();
    let _ = set.set(cpu);
    let _ = sched_setaffinity(Pid::from_raw(0), &set);
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: the pointer is to a live sched_param; pid 0 is this thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
}
