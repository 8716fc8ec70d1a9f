//! Limits the kernel threads that may run on any vCPU.
//!
//! No cgroup limits these threads. An excluded vCPU is idle, so the kernel prefers to wake
//! `rcu_preempt` and others there. The host then takes a pCPU from a vCPU that works and may hold a
//! lock.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::journal::Journal;
use super::set;

/// The file system that lists processes.
pub(super) const PROC: &str = "/proc";
/// `PF_KTHREAD` and `PF_NO_SETAFFINITY` of the kernel's `sched.h`.
const KERNEL: u64 = 0x0020_0000;
const BOUND: u64 = 0x0400_0000;
/// The parent of all kernel threads. It is never limited: the threads that it starts inherit what
/// was asked of it (`user_cpus_ptr`, since Linux 6.2), and nobody would free them.
const KTHREADD: i32 = 2;

/// How long a list of the threads is used: few appear or end.
const FRESH: Duration = Duration::from_secs(10);

/// How long one call moves threads. With rivals on the host, each move can take 10 ms, while tasks
/// are braked and the trial of fewer vCPUs waits.
const AT_A_TIME: Duration = Duration::from_millis(5);

/// The kernel threads that may be moved.
pub(super) struct Threads {
    proc: PathBuf,
    at_a_time: Duration,
    movable: Vec<i32>,
    found: Instant,
    limited: BTreeSet<i32>,
}

impl Threads {
    pub(super) fn find(proc: &Path) -> Threads {
        let (movable, limited) = (movable(proc), BTreeSet::new());
        let (proc, at_a_time) = (proc.to_owned(), AT_A_TIME);
        Threads { proc, at_a_time, movable, found: Instant::now(), limited }
    }

    /// Returns the threads that are free to run on any vCPU, or that unspin has limited to another
    /// set.
    pub(super) fn to_limit(&self, cpus: &str, journal: &Journal) -> Vec<i32> {
        let online = online(journal);
        let is_mine = |&pid: &i32| {
            let now = set_of(pid);
            let is_free = || set::covers(&now, &set::list(&online));
            now != cpus && (is_free() || journal.wrote_to_thread(pid, &now, &online))
        };
        // A thread may have ended since, and a process may have its PID.
        let is_still_one = |&pid: &i32| is_movable(&self.proc, pid);
        self.movable.iter().copied().filter(is_mine).filter(is_still_one).collect()
    }

    /// Keeps threads, which the journal lists, on the vCPUs of a set. If that takes long, the next
    /// call moves the others.
    pub(super) fn limit(&mut self, threads: Vec<i32>, cpus: &str) {
        let began = Instant::now();
        for pid in threads {
            keep(pid, Some(cpus));
            self.limited.insert(pid);
            if began.elapsed() >= self.at_a_time {
                break;
            }
        }
    }

    /// Lets the threads run anywhere again. If that takes long, the next call frees the others.
    pub(super) fn lift(&mut self, journal: &mut Journal) {
        let began = Instant::now();
        while let Some(pid) = self.limited.pop_first() {
            free(pid, journal);
            journal.forget_thread(pid);
            if began.elapsed() >= self.at_a_time {
                return;
            }
        }
        if self.found.elapsed() >= FRESH {
            *self = Threads::find(&self.proc);
        }
    }
}

fn online(journal: &Journal) -> Vec<u32> {
    set::online().unwrap_or_else(|_| set::cpus(journal.all()))
}

/// Lifts a thread's limit, unless somebody else has changed it since.
pub(super) fn free(pid: i32, journal: &Journal) {
    let is_ours = journal.wrote_to_thread(pid, &set_of(pid), &online(journal));
    if is_ours && is_movable(Path::new(PROC), pid) {
        keep(pid, None);
    }
}

fn movable(proc: &Path) -> Vec<i32> {
    let pids = children(proc).unwrap_or_else(|| all(proc));
    pids.into_iter().filter(|&pid| pid != KTHREADD && is_movable(proc, pid)).collect()
}

/// Returns the children of `kthreadd`, which are all kernel threads but itself. A guest can have
/// thousands of processes: to look at each one would take this thread's vCPU, at real-time
/// priority, for a tenth of a second. Returns `None` if the kernel lists no children
/// (`CONFIG_PROC_CHILDREN`).
fn children(proc: &Path) -> Option<Vec<i32>> {
    let file = proc.join(format!("{KTHREADD}/task/{KTHREADD}/children"));
    let text = fs::read_to_string(file).ok()?;
    Some(text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}

/// Returns the PIDs of all processes.
fn all(proc: &Path) -> Vec<i32> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns whether a process is a kernel thread that may be moved.
fn is_movable(proc: &Path, pid: i32) -> bool {
    let stat = fs::read_to_string(proc.join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| flags(&stat).is_some_and(|flags| flags & (KERNEL | BOUND) == KERNEL))
}

/// Returns the online vCPUs that a thread may use, as a set; empty if the thread has gone.
fn set_of(pid: i32) -> String {
    let Ok(cpus) = sched_getaffinity(Pid::from_raw(pid)) else { return String::new() };
    let has = |&cpu: &u32| cpus.is_set(cpu as usize).unwrap_or(false);
    set::list(&(0..CpuSet::count() as u32).filter(has).collect::<Vec<_>>())
}

/// Keeps a thread on the vCPUs of a set; `None` leaves it free. Ignores errors: a thread that
/// cannot be moved costs time, and nothing else.
fn keep(pid: i32, set: Option<&str>) {
    let mut wanted = CpuSet::new();
    let all = || (0..CpuSet::count() as u32).collect();
    for cpu in set.map_or_else(all, set::cpus) {
        let _ = wanted.set(cpu as usize);
    }
    let _ = sched_setaffinity(Pid::from_raw(pid), &wanted);
}

/// Returns whether a process is a kernel thread, given its `/proc/PID/stat`.
pub(super) fn is_kernel(stat: &str) -> bool {
    flags(stat).is_some_and(|flags| flags & KERNEL != 0)
}

/// Returns the flags of a process. Its name may contain spaces and brackets.
fn flags(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_past_any_name() {
        let stat = "15 (rcu) 7 (x)) I 2 0 0 0 -1 2129984 0 0";
        assert_eq!(flags(stat), Some(2_129_984));
        assert_eq!((flags("15 (rcu"), flags("")), (None, None));
    }

    #[test]
    fn user_processes_and_bound_threads_stay() {
        let folder = std::env::temp_dir().join(format!("unspin-kthreads-{}", std::process::id()));
        let threads = [(1, 0x40_0100), (2, KERNEL), (3, KERNEL | BOUND), (6, KERNEL)];
        for (pid, flags) in threads {
            fs::create_dir_all(folder.join(pid.to_string())).unwrap();
            let stat = format!("{pid} (name) S 0 0 0 0 -1 {flags} 0 0 0");
            fs::write(folder.join(pid.to_string()).join("stat"), stat).unwrap();
        }
        fs::create_dir_all(folder.join("4")).unwrap();
        assert_eq!(movable(&folder), [6], "kthreadd passes its limit on");
        // If the kernel lists its threads, the other processes are not read.
        fs::create_dir_all(folder.join("5")).unwrap();
        let stat = format!("5 (name) S 0 0 0 0 -1 {KERNEL} 0 0 0");
        fs::write(folder.join("5/stat"), stat).unwrap();
        fs::create_dir_all(folder.join("2/task/2")).unwrap();
        fs::write(folder.join("2/task/2/children"), "3 ").unwrap();
        assert!(movable(&folder).is_empty());
        fs::write(folder.join("2/task/2/children"), "3 5 ").unwrap();
        assert_eq!(movable(&folder), [5]);
        fs::remove_dir_all(&folder).unwrap();
        assert!(movable(&folder).is_empty());
    }

    #[test]
    fn those_that_take_long_are_moved_one_at_a_time() {
        let mut children: Vec<_> = (0..2)
            .map(|_| std::process::Command::new("sleep").arg("60").spawn().unwrap())
            .collect();
        let pids: Vec<_> = children.iter().map(|child| child.id() as i32).collect();
        let vcpus = set::online().unwrap();
        let (all, first) = (set::list(&vcpus), set::list(&vcpus[..1]));
        let mut threads = Threads::find(Path::new("/nowhere"));
        threads.at_a_time = Duration::ZERO;
        let sets = || pids.iter().map(|&pid| set_of(pid)).collect::<Vec<_>>();
        threads.limit(pids.clone(), &first);
        let one = sets();
        threads.limit(pids[1..].to_vec(), &first);
        let both = sets();
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!((one, both), (vec![first.clone(), all], vec![first.clone(), first]));
    }
}
