//! The part of a machine that this process may use: a container has limits in its cgroups.

use std::fs;
use std::path::{Path, PathBuf};

/// CPUs whose time this process may use, by its affinity and its cgroups' quotas.
pub fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// The least memory limit of this process's cgroup and of those above it, MiB; `None` where
/// none has one.
pub fn memory_limit_mib() -> Option<u64> {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    limit_bytes(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo")).map(|n| n >> 20)
}

/// From the two files of this process (cgroups(7), proc(5)). Version 1 has a number for no limit,
/// too, which is more than any machine has.
fn limit_bytes(cgroups: &str, mountinfo: &str) -> Option<u64> {
    let mounts = mountinfo.lines().filter_map(parse_mount);
    let limits = mounts.filter_map(|mount| {
        let group = cgroups.lines().find_map(|line| mount.group(line))?;
        let own_and_above = group.ancestors().take_while(|folder| folder.starts_with(mount.point));
        let limit = |folder: &Path| {
            fs::read_to_string(folder.join(mount.limit_file)).ok()?.trim().parse::<u64>().ok()
        };
        own_and_above.filter_map(limit).min()
    });
    limits.min()
}

/// A mounted hierarchy that can limit memory.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    /// What a line of /proc/self/cgroup names it by: its controller, or nothing for version 2.
    controller: &'static str,
    limit_file: &'static str,
}

impl Mount<'_> {
    /// The folder of the group that a line of /proc/self/cgroup names, if it is one of these.
    fn group(&self, line: &str) -> Option<PathBuf> {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_ours = controllers.split(',').any(|one| one == self.controller);
        // In a container, paths may begin outside of what is mounted.
        let below = Path::new(path).strip_prefix(self.root).unwrap_or(Path::new(""));
        is_ours.then(|| Path::new(self.point).join(below))
    }
}

fn parse_mount(line: &str) -> Option<Mount<'_>> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, point) = (left.next()?, left.next()?);
    let mut right = right.split(' ');
    let (kind, options) = (right.next()?, right.nth(1)?);
    let (controller, limit_file) = match kind {
        "cgroup2" => ("", "memory.max"),
        "cgroup" if options.split(',').any(|option| option == "memory") => {
            ("memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    Some(Mount { root, point, controller, limit_file })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hierarchy in a folder, with groups and what their files say.
    fn hierarchy(file: &str, limits: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (group, limit) in limits {
            let group = folder.path().join(group);
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join(file), limit).unwrap();
        }
        folder
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_above_counts() {
        let limits = [("", "max\n"), ("a", "3000\n"), ("a/b", "max\n"), ("other", "1\n")];
        let folder = hierarchy("memory.max", &limits);
        let mount = format!("31 23 0:28 / {} rw - cgroup2 cgroup2 rw", folder.path().display());
        assert_eq!(limit_bytes("0::/a/b\n", &mount), Some(3000));
        assert_eq!(limit_bytes("0::/\n", &mount), None);
    }

    #[test]
    fn version_1_is_read_below_the_root_that_is_mounted() {
        let folder = hierarchy("memory.limit_in_bytes", &[("", "9000\n"), ("a", "4000\n")]);
        let point = folder.path().display();
        let mount = format!("35 31 0:32 /box {point} rw - cgroup memory rw,memory");
        assert_eq!(limit_bytes("4:cpu:/\n3:memory:/box/a\n", &mount), Some(4000));
        assert_eq!(limit_bytes("3:memory:/elsewhere\n", &mount), Some(9000));
        assert_eq!(limit_bytes("3:cpu:/box/a\n", &mount), None);
    }
}
