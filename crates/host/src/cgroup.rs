//! CPU cgroups, which decide how VMs share the pCPUs: one group for all VMs, so that each vCPU
//! thread counts the same, or one group per VM with equal weight, so that each VM counts the same.
//! The module supports versions 1 and 2.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use unspin_model::FailureKind;

use unspin_wire::{Failure, Fairness};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The groups of one boot, removed when this value is dropped.
pub struct Groups {
    fairness: Fairness,
    parent: Option<PathBuf>,
}

impl Groups {
    /// Makes the parent group. If that fails, per-thread fairness works without groups (all VMs
    /// then stay in this process's group), and per-VM fairness returns an error.
    pub fn create(fairness: Fairness) -> Result<Groups, Failure> {
        Groups::below(make_parent(), fairness)
    }

    fn below(parent: io::Result<PathBuf>, fairness: Fairness) -> Result<Groups, Failure> {
        match (parent, fairness) {
            (Ok(parent), _) => Ok(Groups { fairness, parent: Some(parent) }),
            (Err(_), Fairness::PerThread) => Ok(Groups { fairness, parent: None }),
            (Err(error), Fairness::PerVm) => Err(Failure::new(
                FailureKind::Unavailable,
                format!("fairness per-vm needs the cpu cgroup controller and root: {error}"),
            )),
        }
    }

    /// Puts a VM's process into its group.
    pub fn place(&self, vm: &str, pid: u32) -> Result<(), Failure> {
        let Some(parent) = &self.parent else { return Ok(()) };
        let group = parent.join(match self.fairness {
            Fairness::PerThread => "all",
            Fairness::PerVm => vm,
        });
        let placed = fs::create_dir_all(&group)
            .and_then(|()| fs::write(group.join("cgroup.procs"), pid.to_string()));
        placed.map_err(|e| {
            Failure::new(FailureKind::Unavailable, format!("cgroup {}: {e}", group.display()))
        })
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let Some(parent) = &self.parent else { return };
        for group in fs::read_dir(parent).into_iter().flatten().flatten() {
            remove(&group.path());
        }
        remove(parent);
    }
}

/// Removes an empty group. A killed process may stay in the group for a moment.
fn remove(group: &Path) {
    if !group.is_dir() {
        return;
    }
    for _ in 0..50 {
        if fs::remove_dir(group).is_ok() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn make_parent() -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("unspin-{}-{number}", std::process::id());
    let (root, v2) = cpu_hierarchy(&mounts).ok_or_else(|| {
        io::Error::other("no cgroup hierarchy with the cpu controller is mounted")
    })?;
    sweep(&root);
    let parent = root.join(name);
    if v2 {
        hand_on_cpu(&root)?;
    }
    fs::create_dir(&parent).map_err(|e| at(&parent, &e))?;
    // If a later step fails, the new group is removed.
    let made = if v2 { hand_on_cpu(&parent) } else { Ok(()) };
    made.inspect_err(|_| remove(&parent)).map(|()| parent)
}

/// Enables the cpu controller for the children of a group of version 2.
fn hand_on_cpu(group: &Path) -> io::Result<()> {
    let file = group.join("cgroup.subtree_control");
    fs::write(&file, "+cpu").map_err(|e| at(&file, &e))
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Removes the groups of processes that were killed. A group with a process in it stays.
fn sweep(root: &Path) {
    for parent in fs::read_dir(root).into_iter().flatten().flatten() {
        let owner = parent.file_name().to_str().and_then(owner);
        if owner.is_none_or(|pid| Path::new("/proc").join(pid.to_string()).exists()) {
            continue;
        }
        for group in fs::read_dir(parent.path()).into_iter().flatten().flatten() {
            let _ = fs::remove_dir(group.path());
        }
        let _ = fs::remove_dir(parent.path());
    }
}

/// Returns the process that made the parent group of this name, or `None` if unspin did not.
fn owner(name: &str) -> Option<u32> {
    let (pid, number) = name.strip_prefix("unspin-")?.split_once('-')?;
    number.parse::<u32>().ok()?;
    pid.parse().ok()
}

/// Returns the mount point of the hierarchy with the cpu controller, and whether the hierarchy is
/// version 2. If both versions are mounted, version 1 wins, because a controller that is bound to
/// it is not available in version 2.
fn cpu_hierarchy(mountinfo: &str) -> Option<(PathBuf, bool)> {
    let mounts: Vec<(PathBuf, &str, &str)> = mountinfo.lines().filter_map(parse_mount).collect();
    let v1 = mounts.iter().find(|(_, kind, options)| {
        *kind == "cgroup" && options.split(',').any(|option| option == "cpu")
    });
    let v2 = mounts.iter().find(|(path, kind, _)| *kind == "cgroup2" && offers_cpu(path));
    v1.map(|m| (m.0.clone(), false)).or_else(|| v2.map(|m| (m.0.clone(), true)))
}

fn offers_cpu(root: &Path) -> bool {
    fs::read_to_string(root.join("cgroup.controllers"))
        .is_ok_and(|list| list.split_whitespace().any(|c| c == "cpu"))
}

/// Returns mount point, type and super options of a line of mountinfo (proc(5)).
fn parse_mount(line: &str) -> Option<(PathBuf, &str, &str)> {
    let (left, right) = line.split_once(" - ")?;
    let path = left.split(' ').nth(4)?;
    let mut right = right.split(' ');
    let kind = right.next()?;
    let options = right.nth(1)?;
    Some((path.into(), kind, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_cannot_be_made_are_unavailable() {
        let none = || Err(io::Error::other("no cpu controller"));
        assert!(Groups::below(none(), Fairness::PerThread).is_ok());
        let failure = Groups::below(none(), Fairness::PerVm).err().unwrap();
        assert_eq!(failure.kind, FailureKind::Unavailable);
        let busy = at(Path::new("/x"), &io::Error::from_raw_os_error(16));
        let failure = Groups::below(Err(busy), Fairness::PerVm).err().unwrap();
        assert!(failure.detail.contains("/x: ") && failure.detail.contains("os error 16"));
        let parent = Ok("/proc/no-such-group".into());
        let groups = Groups::below(parent, Fairness::PerVm).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(groups.place("subject", 1).unwrap_err().kind, FailureKind::Unavailable);
    }

    #[test]
    fn only_groups_of_dead_processes_are_swept() {
        let root = tempfile::tempdir().unwrap();
        let mut dead = std::process::Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        let (dead, alive) = (dead.id(), std::process::id());
        let names = [format!("unspin-{dead}-0"), format!("unspin-{alive}-0"), "unspin-x-0".into()];
        let [left, used, other] = names.map(|name| root.path().join(name));
        for group in [left.join("subject"), left.join("all"), used.join("all"), other.clone()] {
            fs::create_dir_all(group).unwrap();
        }
        sweep(root.path());
        let there = [&left, &used, &used.join("all"), &other].map(|group| group.exists());
        assert_eq!(there, [false, true, true, true]);
    }

    #[test]
    fn version_1_cpu_hierarchy_is_found() {
        let mountinfo = "24 23 0:20 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
             25 24 0:21 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n\
             26 24 0:22 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";
        let found = cpu_hierarchy(mountinfo);
        assert_eq!(found, Some((PathBuf::from("/sys/fs/cgroup/cpu,cpuacct"), false)));
        assert_eq!(cpu_hierarchy("26 24 0:22 / /x rw - cgroup cgroup rw,cpuset\n"), None);
    }
}
