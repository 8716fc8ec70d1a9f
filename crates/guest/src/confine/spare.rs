//! The vCPUs that tasks are kept from, as an isolated partition.
//!
//! An empty cgroup takes them out of the hierarchy, for tasks of the root cgroup and for the
//! kernel's load balancer as well. Otherwise a busy vCPU wakes an excluded one every few
//! milliseconds, to look for tasks to take over. The host then runs that one in place of a vCPU
//! that works, and it spins until that vCPU is back on, for its run queue's lock.
//!
//! To make a partition takes some 30 ms, in which the kernel waits for RCU.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::set;

/// The cgroup.
pub(super) const GROUP: &str = "unspin.spare";
const CPUS: &str = "cpuset.cpus";
const KIND: &str = "cpuset.cpus.partition";
/// A partition without load balancing, since Linux 6.1.
const ISOLATED: &str = "isolated";
/// No partition.
const MEMBER: &str = "member";

/// The cgroup, without tasks.
pub(super) struct Spare {
    root: PathBuf,
    folder: PathBuf,
}

impl Spare {
    /// Makes it; none where the kernel knows no partitions.
    pub(super) fn prepare(root: &Path) -> io::Result<Option<Spare>> {
        let folder = make(root)?;
        Ok(folder.join(KIND).exists().then_some(Spare { root: root.to_owned(), folder }))
    }

    /// Whether it has these vCPUs, a set.
    fn has(&self, cpus: &str) -> bool {
        self.says(KIND) == ISOLATED && self.says(CPUS) == cpus
    }

    /// Takes these, and no others. The kernel refuses some, such as those of another partition.
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

/// The cgroup's folder.
pub(super) fn make(root: &Path) -> io::Result<PathBuf> {
    let folder = root.join(GROUP);
    match fs::create_dir(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(folder),
    }
}

/// The vCPUs that it has, as a set; empty where it has none.
pub(super) fn taken(root: &Path) -> io::Result<String> {
    let folder = root.join(GROUP);
    match set::read(&folder.join(KIND))?.as_str() {
        ISOLATED => set::read(&folder.join(CPUS)),
        _ => Ok(String::new()),
    }
}

/// Gives back what a killed process has left there, and removes the cgroup.
pub(super) fn restore(root: &Path) -> io::Result<()> {
    let folder = root.join(GROUP);
    give_back(root)?;
    let _ = fs::remove_dir(&folder);
    Ok(())
}

/// Gives back all that it has, whoever took them.
pub(super) fn give_back(root: &Path) -> io::Result<()> {
    let folder = root.join(GROUP);
    match set::read(&folder.join(KIND))?.as_str() {
        "" | MEMBER => Ok(()),
        _ => fs::write(folder.join(KIND), MEMBER),
    }
}
