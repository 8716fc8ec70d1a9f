//! The threads, and what they do.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// What the threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// They wait for the first phase.
    Wait,
    /// They duplicate a file descriptor and close it. All take the spinlock of the process's
    /// table for that, twice.
    Spin,
    /// Each counts, and shares nothing with the others.
    Compute,
    /// They end.
    Stop,
}

/// Additions of one counted loop: tens of microseconds.
const ADDITIONS: u64 = 50_000;
/// A guest that cannot start threads for so long has another problem.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Most threads: each has a descriptor in addition at times, and many a limit is 1,024.
pub const THREADS_MAX: usize = 512;

/// What the threads share.
pub struct Load {
    descriptor: File,
    kind: AtomicU8,
    /// Ids in the kernel; 0 before a thread has started.
    ids: [AtomicI32; THREADS_MAX],
}

/// Ends the threads when dropped: also where the caller returns early.
pub struct StopAtTheEnd<'a>(&'a Load);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.change(Kind::Stop);
    }
}

impl Load {
    /// Threads that will wait until this is changed.
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

    /// Starts a thread; `number` counts from 0. Its result is how often it did the one and the
    /// other.
    pub fn spawn<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        number: usize,
    ) -> io::Result<ScopedJoinHandle<'scope, io::Result<[u64; 2]>>> {
        std::thread::Builder::new().spawn_scoped(scope, move || {
            // SAFETY: it takes no arguments and cannot fail.
            let id = unsafe { libc::gettid() };
            self.ids[number].store(id, Ordering::Relaxed);
            self.work()
        })
    }

    /// The threads' ids in the kernel, once all have started.
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
