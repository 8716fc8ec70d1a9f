//! The root cgroup, whose processes no limit reaches.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::CpusetError;
use super::{ROOT, kthreads};

/// The name of the cgroup for a command that would otherwise run in the root.
const OWN: &str = "unspin";
const PROCS: &str = "cgroup.procs";

/// The CPUs that processes must use to count as busy: a tenth of one.
const BUSY: f64 = 0.1;
const FRESH: Duration = Duration::from_secs(10);
/// `USER_HZ`, the unit in which Linux counts a process's time on x86.
const TICKS_PER_S: f64 = 100.0;

/// Returns whether a file lists a controller; a missing file lists none.
pub(super) fn lists(root: &Path, file: &str, controller: &str) -> Result<bool, CpusetError> {
    let file = root.join(file);
    match fs::read_to_string(&file) {
        Ok(text) => Ok(text.split_ascii_whitespace().any(|word| word == controller)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(CpusetError::Read(file, error)),
    }
}

/// A cgroup for a command. Dropping this removes it, unless a process is left in it.
pub struct OwnCgroup {
    folder: PathBuf,
}

impl OwnCgroup {
    /// Returns the folder of the cgroup.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Moves this process into the cgroup, and with it the commands that it starts.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn enter(&self) -> io::Result<()> {
        fs::write(self.folder.join(PROCS), "0")
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        if is_in(OWN).unwrap_or(false) {
            let _ = fs::write(Path::new(ROOT).join(PROCS), "0");
        }
        remove_own_cgroup();
    }
}

/// Whether this process is in a container. Some share the guest's process numbers and cgroups, such
/// as privileged pods of Kubernetes with `hostPID`, but none its root folder.
pub(super) fn in_container() -> bool {
    in_namespace() || differ(Path::new("/proc/1/root"), Path::new("/"))
}

/// Whether these are two folders. To look at the root of the first process takes CAP_SYS_PTRACE,
/// which the systemd unit does not have: what cannot be seen does not differ.
fn differ(one: &Path, other: &Path) -> bool {
    let id = |folder: &Path| fs::metadata(folder).ok().map(|it| (it.dev(), it.ino()));
    id(one).zip(id(other)).is_some_and(|(one, other)| one != other)
}

/// Whether this process has process numbers or cgroups of its own: the guest's first namespaces
/// have fixed inodes (include/linux/proc_ns.h, PROC_PID_INIT_INO and PROC_CGROUP_INIT_INO).
fn in_namespace() -> bool {
    let differs = |(file, first): (&str, &str)| {
        fs::read_link(Path::new("/proc/self/ns").join(file))
            .is_ok_and(|own| own.as_os_str() != first)
    };
    [("pid", "pid:[4026531836]"), ("cgroup", "cgroup:[4026531835]")].into_iter().any(differs)
}

/// Returns whether this process is in the given top-level cgroup; "" means the root itself.
fn is_in(group: &str) -> io::Result<bool> {
    let ours = fs::read_to_string("/proc/self/cgroup")?;
    Ok(ours.lines().any(|line| line.strip_prefix("0::/") == Some(group)))
}

/// Makes a cgroup for a command that starts now, if this process is in the root. Otherwise returns
/// `None`: the command inherits a cgroup that can be limited.
///
/// # Errors
/// The cgroup cannot be made.
pub fn own_cgroup() -> io::Result<Option<OwnCgroup>> {
    if !is_in("")? {
        return Ok(None);
    }
    let folder = Path::new(ROOT).join(OWN);
    match fs::create_dir(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(Some(OwnCgroup { folder })),
    }
}

/// Removes the command's cgroup if no process is left in it.
pub(super) fn remove_own_cgroup() {
    let _ = fs::remove_dir(Path::new(ROOT).join(OWN));
}

/// The user processes in the root cgroup when they were last looked at.
pub(super) struct InRoot {
    pub(super) count: u64,
    /// Whether they compute, so that a limit that does not reach them does little.
    pub(super) busy: bool,
    /// The time that all of them have computed since they began, in ticks of `USER_HZ`.
    ticks: u64,
    seen: Instant,
    /// How long this look is used: a new one reads a file or two per process.
    fresh: Duration,
}

impl InRoot {
    pub(super) fn look() -> InRoot {
        let (count, ticks) = processes();
        InRoot { count, busy: false, ticks, seen: Instant::now(), fresh: Duration::from_secs(1) }
    }

    /// Looks again if the last look is old.
    pub(super) fn refresh(&mut self) {
        let seconds = self.seen.elapsed();
        if seconds < self.fresh {
            return;
        }
        let (count, ticks) = processes();
        let computed = ticks.saturating_sub(self.ticks) as f64 / TICKS_PER_S;
        let busy = computed >= BUSY * seconds.as_secs_f64();
        *self = InRoot { count, busy, ticks, seen: Instant::now(), fresh: FRESH };
    }
}

/// Returns the number of user processes, and their ticks.
fn processes() -> (u64, u64) {
    let list = fs::read_to_string(Path::new(ROOT).join(PROCS)).unwrap_or_default();
    let of = |pid: &str| {
        let folder = Path::new("/proc").join(pid);
        // Read no arguments: the lock of the process's memory protects them, and it may be spinning
        // on it.
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        (!kthreads::is_kernel(&stat)).then(|| ticks(&stat).unwrap_or(0))
    };
    list.lines().filter_map(of).fold((0, 0), |(count, sum), ticks| (count + 1, sum + ticks))
}

/// Returns the ticks of a process in user space and in the kernel.
fn ticks(stat: &str) -> Option<u64> {
    let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some(words.next()?.parse::<u64>().ok()? + words.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_has_a_root_folder_of_its_own() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        assert!(differ(one.path(), other.path()));
        assert!(!differ(one.path(), &one.path().join(".")));
        assert!(!differ(&one.path().join("none"), other.path()), "it cannot be seen");
    }

    #[test]
    fn ticks_are_those_of_user_space_and_the_kernel() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194560 120 0 0 0 31 11 5 6 20 0 1 0 250";
        assert_eq!((ticks(stat), ticks("7 (a) R 1"), ticks("")), (Some(42), None, None));
        assert!(!kthreads::is_kernel(stat));
        assert!(kthreads::is_kernel("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 5 0"));
    }
}
