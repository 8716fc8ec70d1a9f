//! The threads and their load.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// The threads' current activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The threads wait for the first phase.
    Wait,
    /// Each thread duplicates a file descriptor and closes it. For that, it takes the spinlock of
    /// the process's descriptor table twice.
    Spin,
    /// Each thread counts, and shares nothing with the others.
    Compute,
    /// The threads end.
    Stop,
}

/// Additions of one counted loop, which take tens of microseconds.
const ADDITIONS: u64 = 50_000;
/// The time limit for starting the threads. A guest that takes longer has another problem.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The most threads. Each has an additional descriptor at times, and many a limit is 1,024.
pub const THREADS_MAX: usize = 512;

/// The state that the threads share.
pub struct Load {
    descriptor: File,
    kind: AtomicU8,
    /// The threads' kernel IDs; 0 before a thread has started.
    ids: [AtomicI32; THREADS_MAX],
}

/// A guard that ends the threads when it is dropped, even if the caller returns early.
pub struct StopAtTheEnd<'a>(&'a Load);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.change(Kind::Stop);
    }
}

impl Load {
    /// Creates the state of threads that wait until [`Load::change`].
    pub fn new() -> io::Result<Load> {
        Ok(Load {
            descriptor: File::open("/dev/null")?,
            kind: AtomicU8::new(Kind::Wait as u8),
            ids: [const { AtomicI32::new(0) }; THREADS_MAX],
        })
    }

    pub fn change(&self, kind: Kind) {
        self.kind.store(kind as u8, Ordering::Relaxed);
    }

    pub fn stop_at_the_end(&self) -> StopAtTheEnd<'_> {
        StopAtTheEnd(self)
    }

    /// Starts a thread; `number` counts from 0. The thread returns how often it spun and how often
    /// it computed.
    pub fn spawn<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        number: usize,
    ) -> io::Result<ScopedJoinHandle<'scope, io::Result<[u64; 2]>>> {
        std::thread::Builder::new().spawn_scoped(scope, move || {
            // SAFETY: the call takes no arguments and cannot fail.
            let id = unsafe { libc::gettid() };
            self.ids[number].store(id, Ordering::Relaxed);
            self.work()
        })
    }

    /// Returns the threads' kernel IDs, once all threads have started.
    pub fn thread_ids(&self, threads: usize) -> io::Result<Vec<i32>> {
        let started = Instant::now();
        loop {
            let ids = self.ids[..threads].iter().map(|id| id.load(Ordering::Relaxed));
            let ids: Vec<_> = ids.filter(|id| *id != 0).collect();
            if ids.len() == threads {
                return Ok(ids);
            }
            if started.elapsed() > START_LIMIT {
                return Err(io::Error::other("the threads do not start"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn work(&self) -> io::Result<[u64; 2]> {
        let [mut spun, mut computed] = [0; 2];
        loop {
            match self.kind.load(Ordering::Relaxed) {
                kind if kind == Kind::Spin as u8 => {
                    drop(self.descriptor.try_clone()?);
                    spun += 1;
                }
                kind if kind == Kind::Compute as u8 => {
                    (0..ADDITIONS).for_each(|count| {
                        std::hint::black_box(count);
                    });
                    computed += 1;
                }
                kind if kind == Kind::Wait as u8 => std::thread::sleep(Duration::from_millis(1)),
                _ => return Ok([spun, computed]),
            }
        }
    }
}
