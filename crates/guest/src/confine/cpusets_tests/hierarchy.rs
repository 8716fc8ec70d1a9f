//! A hierarchy of cgroups for tests, made of ordinary files.

use std::fs;
use std::path::PathBuf;

use crate::confine::cpusets::{CONTROL, CPUS, Cpusets};
use crate::confine::error::CpusetError;

/// A folder that looks like a hierarchy with the given cgroups and sets, and a folder for the
/// journal.
pub(super) struct Hierarchy {
    pub(super) folder: PathBuf,
}

impl Hierarchy {
    pub(super) fn new(name: &str, groups: &[(&str, &str)]) -> Hierarchy {
        let name = format!("unspin-cpusets-{name}-{}", std::process::id());
        let hierarchy = Hierarchy { folder: std::env::temp_dir().join(name) };
        let _ = fs::remove_dir_all(&hierarchy.folder);
        fs::create_dir_all(hierarchy.root()).unwrap();
        fs::write(hierarchy.root().join("cgroup.controllers"), "cpuset cpu\n").unwrap();
        fs::write(hierarchy.root().join(CONTROL), "cpu\n").unwrap();
        groups.iter().for_each(|(group, set)| hierarchy.add(group, set));
        hierarchy
    }

    pub(super) fn root(&self) -> PathBuf {
        self.folder.join("cgroup")
    }

    pub(super) fn add(&self, group: &str, set: &str) {
        fs::create_dir_all(self.root().join(group)).unwrap();
        self.set(group, set);
    }

    pub(super) fn set(&self, group: &str, set: &str) {
        fs::write(self.root().join(group).join(CPUS), format!("{set}\n")).unwrap();
    }

    pub(super) fn open(&self) -> Cpusets {
        self.try_open(false).unwrap()
    }

    /// Opens the hierarchy as on a kernel that throttles tasks in user space.
    pub(super) fn open_braking(&self) -> Cpusets {
        self.try_open(true).unwrap()
    }

    /// Opens the hierarchy with an empty list of kernel threads.
    pub(super) fn try_open(&self, brakes: bool) -> Result<Cpusets, CpusetError> {
        Cpusets::open(&self.root(), &self.folder, &self.folder.join("proc"), "0-3", brakes)
    }

    pub(super) fn says(&self, group: &str) -> String {
        fs::read_to_string(self.root().join(group).join(CPUS)).unwrap().trim().to_owned()
    }

    pub(super) fn set_quota(&self, quota: &str) {
        fs::write(self.root().join("mine/cpu.max"), format!("{quota}\n")).unwrap();
    }

    pub(super) fn quota(&self) -> String {
        fs::read_to_string(self.root().join("mine/cpu.max")).unwrap().trim().to_owned()
    }

    pub(super) fn control(&self) -> String {
        fs::read_to_string(self.root().join(CONTROL)).unwrap()
    }
}

impl Drop for Hierarchy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
