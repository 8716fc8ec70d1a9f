//! How long QEMU could have run. A busy machine makes it wait for a CPU, and that must not count
//! against it: the same run passes on any machine.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// A process that was started, and how long it could have run since.
pub(super) struct Patience {
    started: Instant,
    /// The folder that has one of the process's threads in each entry.
    threads: String,
    waited: Duration,
}

impl Patience {
    pub(super) fn with(process: u32) -> Patience {
        let threads = format!("/proc/{process}/task");
        Patience { started: Instant::now(), threads, waited: Duration::ZERO }
    }

    /// Returns the real time since the start, without the time in which one thread of the process
    /// waited for a CPU: the one that waited longest. It never goes back.
    pub(super) fn passed(&mut self) -> Duration {
        let threads = fs::read_dir(&self.threads).into_iter().flatten().flatten();
        let longest = threads.filter_map(|thread| wait_ns(&thread.path())).max();
        self.waited = self.waited.max(Duration::from_nanos(longest.unwrap_or(0)));
        self.started.elapsed().saturating_sub(self.waited)
    }
}

/// Returns how long a thread has waited for a CPU, in nanoseconds; `None` if it has ended, or the
/// kernel does not count (`CONFIG_SCHED_INFO`).
fn wait_ns(thread: &Path) -> Option<u64> {
    wait_in(&fs::read_to_string(thread.join("schedstat")).ok()?)
}

/// Reads the second of the three numbers: on a CPU, waiting for one, time slices.
fn wait_in(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_wait() {
        assert_eq!(wait_in("94856 638827 2\n"), Some(638_827));
        assert_eq!(wait_in(""), None);
    }

    #[test]
    fn a_wait_does_not_count_and_an_ended_thread_s_stays() {
        let folder = tempfile::tempdir().unwrap();
        let thread = folder.path().join("7");
        fs::create_dir(&thread).unwrap();
        let started = Instant::now().checked_sub(Duration::from_secs(1_000)).unwrap();
        let threads = folder.path().display().to_string();
        let mut patience = Patience { started, threads, waited: Duration::ZERO };
        assert_eq!(patience.passed().as_secs(), 1_000);
        fs::write(thread.join("schedstat"), "1 900000000000 5\n").unwrap();
        assert_eq!(patience.passed().as_secs(), 100);
        // Threads that wait at the same time count once.
        let other = folder.path().join("8");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("schedstat"), "1 800000000000 5\n").unwrap();
        assert_eq!(patience.passed().as_secs(), 100);
        fs::remove_dir_all(&thread).unwrap();
        assert_eq!(patience.passed().as_secs(), 100);
    }
}
