//! Sets of vCPUs as the kernel writes them: `0-1,3`.

use std::fs;
use std::path::Path;

use super::spare;

const SYSTEM: &str = "/sys/devices/system/cpu";

/// These vCPUs, in ascending order, as a set.
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

/// The vCPUs of a set.
pub(super) fn cpus(set: &str) -> Vec<u32> {
    let range = |range: &str| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some(from.parse().ok()?..=to.parse::<u32>().ok()?)
    };
    set.trim().split(',').filter_map(range).flatten().collect()
}

/// Whether a set has all vCPUs of another one; both are as the kernel writes them.
pub(super) fn covers(set: &str, other: &str) -> bool {
    let set = cpus(set);
    !set.is_empty() && cpus(other).iter().all(|cpu| set.binary_search(cpu).is_ok())
}

/// The vCPUs that tasks of ordinary cgroups may use while nothing is limited: those that are online
/// and in nobody else's partition.
pub(super) fn usable(root: &Path) -> Vec<u32> {
    let online = online();
    let mut effective = cpus(&says(&root.join("cpuset.cpus.effective")));
    effective.extend(cpus(&spare::taken(root)));
    let both: Vec<u32> = online.iter().copied().filter(|cpu| effective.contains(cpu)).collect();
    if both.is_empty() { online } else { both }
}

/// The set that means no limit: all possible vCPUs, or, beside partitions, those outside of them.
pub(super) fn all(usable: &[u32]) -> String {
    let possible = says(&Path::new(SYSTEM).join("possible"));
    if usable == online() && !possible.is_empty() { possible } else { list(usable) }
}

/// The vCPUs that `isolcpus=` keeps ordinary tasks from; empty in most guests.
pub(super) fn isolated() -> String {
    says(&Path::new(SYSTEM).join("isolated"))
}

/// The vCPUs that are online.
pub(super) fn online() -> Vec<u32> {
    let online = cpus(&says(&Path::new(SYSTEM).join("online")));
    if online.is_empty() { vec![0] } else { online }
}

pub(super) fn says(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default().trim().to_owned()
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
    fn a_set_covers_its_parts() {
        assert!(covers("0-3", "0-3") && covers("0-7", "0-3") && covers("0-3", "1,3"));
        assert!(!covers("0-1", "0-3") && !covers("", "0") && !covers("", ""));
    }
}
