//! Sets of vCPUs in the kernel's notation: `0-1,3`.

use std::fs;
use std::io;
use std::path::Path;

use nix::errno::Errno;

use super::spare;

const SYSTEM: &str = "/sys/devices/system/cpu";

/// Returns vCPUs, given in ascending order, as a set.
pub(super) fn list(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, to)) if *to + 1 == cpu => *to = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let range = |(from, to): &(u32, u32)| match from == to {
        true => from.to_string(),
        false => format!("{from}-{to}"),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

/// Returns the vCPUs of a set.
pub(super) fn cpus(set: &str) -> Vec<u32> {
    let range = |range: &str| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some(from.parse().ok()?..=to.parse::<u32>().ok()?)
    };
    set.trim().split(',').filter_map(range).flatten().collect()
}

/// Returns whether a set has all vCPUs of another one. Both must be in ascending order, as the
/// kernel writes them.
pub(super) fn covers(set: &str, other: &str) -> bool {
    let set = cpus(set);
    !set.is_empty() && cpus(other).iter().all(|cpu| set.binary_search(cpu).is_ok())
}

/// Returns the part of a set that is in `cpus_of`.
pub(super) fn within(set: &str, cpus_of: &[u32]) -> String {
    list(&cpus(set).into_iter().filter(|cpu| cpus_of.contains(cpu)).collect::<Vec<_>>())
}

/// Returns the vCPUs that tasks of ordinary cgroups may use while nothing is limited: those that
/// are online and in nobody else's partition.
///
/// # Errors
/// The kernel does not list these vCPUs, for want of a file descriptor or of memory.
pub(super) fn usable(root: &Path) -> io::Result<Vec<u32>> {
    let online = online()?;
    let mut effective = cpus(&read(&root.join("cpuset.cpus.effective"))?);
    effective.extend(cpus(&spare::taken(root)?));
    let both: Vec<u32> = online.iter().copied().filter(|cpu| effective.contains(cpu)).collect();
    Ok(if both.is_empty() { online } else { both })
}

/// Returns the set that means no limit: all possible vCPUs or, if others have partitions, the vCPUs
/// outside of these.
///
/// # Errors
/// As for [`usable`].
pub(super) fn all(usable: &[u32]) -> io::Result<String> {
    let possible = read(&Path::new(SYSTEM).join("possible"))?;
    Ok(if usable == online()? && !possible.is_empty() { possible } else { list(usable) })
}

/// The vCPUs that `isolcpus=` keeps ordinary tasks from; empty in most guests.
pub(crate) fn isolated() -> String {
    says(&Path::new(SYSTEM).join("isolated"))
}

/// Returns the vCPUs that are online.
///
/// # Errors
/// As for [`usable`].
pub(crate) fn online() -> io::Result<Vec<u32>> {
    let online = cpus(&read(&Path::new(SYSTEM).join("online"))?);
    Ok(if online.is_empty() { vec![0] } else { online })
}

/// How many vCPUs may come online; 0 where the kernel does not say.
pub(crate) fn possible_vcpus() -> u32 {
    cpus(&says(&Path::new(SYSTEM).join("possible"))).len() as u32
}

/// What a file says; nothing where it cannot be read.
pub(super) fn says(file: &Path) -> String {
    read(file).unwrap_or_default()
}

/// Returns the contents of a file; empty if the file or its cgroup has gone.
///
/// # Errors
/// The file may exist, but cannot be read.
pub(super) fn read(file: &Path) -> io::Result<String> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) if has_gone(&error) => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// Returns whether an error means that the file is missing, or that its cgroup has gone while it
/// was open.
pub(super) fn has_gone(error: &io::Error) -> bool {
    let gone = [Some(Errno::ENOENT as i32), Some(Errno::ENODEV as i32)];
    gone.contains(&error.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_as_the_kernel_does() {
        for text in ["0", "0-1", "0,2-3", "1,3,5-7"] {
            assert_eq!(list(&cpus(text)), text);
        }
        assert_eq!((list(&[]), cpus("\n")), (String::new(), vec![]));
    }

    #[test]
    fn a_part_of_a_set_is_online() {
        assert_eq!(within("0,2,4,6", &[0, 1, 2, 3, 4, 5, 7]), "0,2,4");
        assert_eq!(within("0-5", &[0, 1, 2]), "0-2");
    }

    #[test]
    fn a_set_covers_its_parts() {
        assert!(covers("0-3", "0-3") && covers("0-7", "0-3") && covers("0-3", "1,3"));
        assert!(!covers("0-1", "0-3") && !covers("", "0") && !covers("", ""));
    }
}
