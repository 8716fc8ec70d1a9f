//! A second thread next to the measuring one.

use std::hint::spin_loop;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::os::pin_to;

/// Runs `measure` while `peer` runs on another CPU, to which it is pinned. `measure` must end
/// `peer` even if `measure` fails. Since it may wait for `peer`, neither runs if the pinning fails.
pub fn beside<P: Send, T>(
    cpu: usize,
    peer: impl FnOnce() -> io::Result<P> + Send,
    measure: impl FnOnce() -> io::Result<T>,
) -> io::Result<(T, P)> {
    let (bound, is_bound) = mpsc::channel();
    thread::scope(|scope| {
        let peer = scope.spawn(move || {
            pin_to(cpu)?;
            bound.send(()).expect("the other thread waits for it");
            peer()
        });
        let measured = is_bound.recv().is_ok().then(measure).transpose();
        let peer = peer.join().expect("it does not panic");
        let measured = measured?;
        let peer = peer?;
        Ok((measured.expect("the peer was bound"), peer))
    })
}

/// The state of a thread that computes until it is stopped.
#[derive(Default)]
pub struct Busy {
    runs: AtomicBool,
    stopped: AtomicBool,
}

impl Busy {
    /// Repeats `step` until [`Busy::stop`].
    pub fn run(&self, mut step: impl FnMut()) {
        self.runs.store(true, Ordering::Release);
        while !self.stopped.load(Ordering::Relaxed) {
            step();
        }
    }

    /// Waits until the thread runs.
    pub fn await_start(&self) {
        while !self.runs.load(Ordering::Acquire) {
            spin_loop();
        }
    }

    /// Makes the thread return.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}
