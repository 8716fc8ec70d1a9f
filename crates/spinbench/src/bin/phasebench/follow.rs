//! The vCPUs that the threads may use, checked every millisecond.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_millis(1);

/// A follower of the threads' vCPUs. It runs ahead of all other tasks if it may.
pub struct Follower {
    threads: Vec<i32>,
    all: u32,
}

impl Follower {
    /// Creates a follower of the threads with these kernel IDs. The calling thread may use all
    /// vCPUs.
    pub fn new(threads: Vec<i32>) -> io::Result<Follower> {
        let priority = libc::sched_param { sched_priority: 1 };
        // SAFETY: the kernel reads `priority`. Without the right to this policy, the thread only
        // runs later.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) };
        Ok(Follower { threads, all: vcpus(0)? })
    }

    /// Returns whether all threads are limited.
    pub fn is_limited(&self) -> io::Result<bool> {
        self.threads.iter().try_fold(true, |all, id| Ok(all && vcpus(*id)? < self.all))
    }

    /// Returns whether any thread is limited.
    pub fn is_any_limited(&self) -> io::Result<bool> {
        self.threads.iter().try_fold(false, |any, id| Ok(any || vcpus(*id)? < self.all))
    }

    /// Waits until a phase is over. Returns after how long `is` became true, if it did.
    pub fn watch(
        &self,
        phase: Duration,
        is: impl Fn(&Follower) -> io::Result<bool>,
    ) -> io::Result<Option<Duration>> {
        let started = Instant::now();
        let mut seen = None;
        while started.elapsed() < phase {
            let at = started.elapsed();
            if seen.is_none() && is(self)? {
                seen = Some(at.min(phase));
            }
            std::thread::sleep(if seen.is_some() {
                phase - started.elapsed().min(phase)
            } else {
                PERIOD
            });
        }
        Ok(seen)
    }
}

/// Returns the number of vCPUs that a thread may use; 0 is the calling thread.
fn vcpus(thread: i32) -> io::Result<u32> {
    // SAFETY: an all-zero set is an empty one, and the kernel writes at most its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(thread, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(libc::CPU_COUNT(&set) as u32)
    }
}

/// The times until an event, and the number of rounds without the event.
#[derive(Default)]
pub struct Reactions {
    seen: Vec<Duration>,
    missed: u32,
}

impl Reactions {
    pub fn add(&mut self, after: Option<Duration>) {
        match after {
            Some(after) => self.seen.push(after),
            None => self.missed += 1,
        }
    }

    /// Returns median and maximum, in milliseconds.
    fn figures(&self) -> Option<[f64; 2]> {
        let mut ms: Vec<_> = self.seen.iter().map(|after| after.as_secs_f64() * 1e3).collect();
        ms.sort_by(f64::total_cmp);
        Some([*ms.get(ms.len() / 2)?, *ms.last()?])
    }

    /// Returns the figures as JSON. `seen` and `missed` count rounds; without a seen one, the other
    /// figures are absent.
    pub fn to_json(&self) -> serde_json::Value {
        let mut json = serde_json::json!({ "seen": self.seen.len(), "missed": self.missed });
        if let Some([median, max]) = self.figures() {
            json["median_ms"] = median.into();
            json["max_ms"] = max.into();
        }
        json
    }
}

impl Display for Reactions {
    fn fmt(&self, out: &mut Formatter) -> fmt::Result {
        write!(out, "{} of {} rounds", self.seen.len(), self.seen.len() + self.missed as usize)?;
        match self.figures() {
            Some([median, max]) => {
                write!(out, ", after {median:.0} ms (median), {max:.0} ms at most")
            }
            None => Ok(()),
        }
    }
}
