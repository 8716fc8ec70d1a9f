//! The share of the machine that this process may use. In a container, cgroups limit it.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns how many CPUs this process may use, given its affinity and its cgroups' quotas.
pub fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// Returns the lowest memory limit of this process's cgroup and its ancestors, in MiB, or `None` if
/// no limit is set.
pub fn memory_limit_mib() -> Option<u64> {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    limit_bytes(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo")).map(|n| n >> 20)
}

/// Returns the lowest limit, given the two files of this process (cgroups(7), proc(5)). cgroup
/// version 1 writes "no limit" as a number, too: one that exceeds the memory of any machine.
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

/// A mounted cgroup hierarchy that can limit memory.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    /// The controller that identifies this hierarchy in /proc/self/cgroup; empty for version 2.
    controller: &'static str,
    limit_file: &'static str,
}

impl Mount<'_> {
    /// Returns the folder of the group in a line of /proc/self/cgroup if the line is about this
    /// hierarchy.
    fn group(&self, line: &str) -> Option<PathBuf> {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_ours = controllers.split(',').any(|one| one == self.controller);
        // In a container, the path may lie outside the mounted part of the hierarchy.
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

    /// Makes a hierarchy in a folder, with the given limit file in each group.
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
