//! The unused vCPUs, as an isolated partition.
//!
//! An empty cgroup takes these vCPUs out of the hierarchy, also for tasks of the root cgroup and
//! for the kernel's load balancer. Otherwise a busy vCPU wakes an excluded one every few
//! milliseconds, to look for tasks to take over. The host then runs the excluded vCPU in place of a
//! working one, and the excluded one spins for that one's run queue lock until the host runs it
//! again.
//!
//! To make a partition takes about 30 ms, in which the kernel waits for RCU.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::set;

/// The name of the cgroup.
pub(super) const GROUP: &str = "unspin.spare";
const CPUS: &str = "cpuset.cpus";
const KIND: &str = "cpuset.cpus.partition";
/// The type of a partition without load balancing, since Linux 6.1.
const ISOLATED: &str = "isolated";
/// The type of a cgroup that is not a partition.
const MEMBER: &str = "member";

/// The cgroup of the partition, which never has tasks.
pub(super) struct Spare {
    root: PathBuf,
    folder: PathBuf,
}

impl Spare {
    /// Makes the cgroup; returns `None` if the kernel does not support partitions.
    pub(super) fn prepare(root: &Path) -> io::Result<Option<Spare>> {
        let folder = make(root)?;
        Ok(folder.join(KIND).exists().then_some(Spare { root: root.to_owned(), folder }))
    }

    /// Returns whether the partition has exactly this set of vCPUs.
    fn has(&self, cpus: &str) -> bool {
        self.says(KIND) == ISOLATED && self.says(CPUS) == cpus
    }

    /// Makes the partition from this set of vCPUs. The kernel refuses some sets, such as one with
    /// vCPUs of another partition.
    pub(super) fn take(&self, cpus: &str) -> io::Result<()> {
        if self.has(cpus) {
            return Ok(());
        }
        let done = fs::write(self.folder.join(CPUS), cpus)
            .and_then(|()| fs::write(self.folder.join(KIND), ISOLATED));
        if done.is_ok() && self.has(cpus) {
            return Ok(());
        }
        let why = self.says(KIND);
        give_back(&self.root)?;
        done.and(Err(io::Error::other(why)))
    }

    fn says(&self, file: &str) -> String {
        set::says(&self.folder.join(file))
    }
}

/// Makes the cgroup if necessary, and returns its folder.
pub(super) fn make(root: &Path) -> io::Result<PathBuf> {
    let folder = root.join(GROUP);
    match fs::create_dir(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(folder),
    }
}

/// Returns the vCPUs of the partition as a set; empty if it has none.
pub(super) fn taken(root: &Path) -> io::Result<String> {
    let folder = root.join(GROUP);
    match set::read(&folder.join(KIND))?.as_str() {
        ISOLATED => set::read(&folder.join(CPUS)),
        _ => Ok(String::new()),
    }
}

/// Gives back the vCPUs that a killed process has left in the partition, and removes the cgroup.
pub(super) fn restore(root: &Path) -> io::Result<()> {
    let folder = root.join(GROUP);
    give_back(root)?;
    let _ = fs::remove_dir(&folder);
    Ok(())
}

/// Gives back all vCPUs of the partition, whichever process took them.
pub(super) fn give_back(root: &Path) -> io::Result<()> {
    let folder = root.join(GROUP);
    match set::read(&folder.join(KIND))?.as_str() {
        "" | MEMBER => Ok(()),
        _ => fs::write(folder.join(KIND), MEMBER),
    }
}
