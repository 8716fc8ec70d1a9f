//! Steal time: how long vCPUs were off according to the hypervisor, which the kernel passes on in
//! /proc/stat. unspin does not depend on it; it is a second witness where it exists.

use std::fs;

/// The unit of /proc/stat, 1/100 s, in nanoseconds.
pub(crate) const TICK_NS: u64 = 10_000_000;

/// The steal time of each vCPU since a start.
pub(crate) struct Steal {
    /// The ticks of each vCPU when it was first and last seen.
    seen: Vec<Option<(u64, u64)>>,
}

impl Steal {
    /// Starts counting for `vcpus` vCPUs.
    pub(crate) fn start(vcpus: usize) -> Steal {
        let mut steal = Steal { seen: vec![None; vcpus] };
        steal.ns();
        steal
    }

    /// Covers `vcpus` vCPUs from now on, if these are more than before.
    pub(crate) fn cover(&mut self, vcpus: usize) {
        self.seen.resize(vcpus.max(self.seen.len()), None);
    }

    /// Returns each vCPU's nanoseconds until now; empty if the kernel has no such figure. If the
    /// hypervisor reports no steal time, they are 0.
    pub(crate) fn ns(&mut self) -> Vec<u64> {
        self.look(&fs::read_to_string("/proc/stat").unwrap_or_default());
        if self.seen.iter().all(Option::is_none) {
            return Vec::new();
        }
        let since = |seen: &Option<(u64, u64)>| seen.map_or(0, |(first, last)| last - first);
        self.seen.iter().map(|seen| since(seen) * TICK_NS).collect()
    }

    /// Reads the ticks. An offline vCPU has no line, and continues to count when it is back.
    fn look(&mut self, stat: &str) {
        for (vcpu, ticks) in by_vcpu(stat) {
            if let Some(seen) = self.seen.get_mut(vcpu) {
                let (_, last) = seen.get_or_insert((ticks, ticks));
                *last = ticks.max(*last);
            }
        }
    }
}

/// Returns the steal ticks of all vCPUs since boot.
pub(crate) fn of_all(stat: &str) -> Option<u64> {
    ticks(stat.lines().next()?.strip_prefix("cpu ")?)
}

/// Returns the CPU time of all vCPUs since boot in ticks, in all states: the first eight figures.
/// Guest time, the ninth and tenth figure, is a part of them.
pub(crate) fn cpu_ticks(stat: &str) -> Option<u64> {
    let figures = stat.lines().next()?.strip_prefix("cpu ")?;
    figures.split_ascii_whitespace().take(8).map(|figure| figure.parse::<u64>().ok()).sum()
}

fn by_vcpu(stat: &str) -> impl Iterator<Item = (usize, u64)> {
    stat.lines().filter_map(|line| {
        let (vcpu, figures) = line.strip_prefix("cpu")?.split_once(' ')?;
        Some((vcpu.parse().ok()?, ticks(figures)?))
    })
}

/// Returns the steal time, the eighth figure (Documentation/filesystems/proc.rst). Linux before
/// 2.6.11 has fewer figures.
fn ticks(figures: &str) -> Option<u64> {
    figures.split_ascii_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(stats: &[&str]) -> Vec<u64> {
        let mut steal = Steal { seen: vec![None; 3] };
        for stat in stats {
            steal.look(stat);
        }
        let since = |seen: &Option<(u64, u64)>| seen.map(|(first, last)| last - first);
        steal.seen.iter().filter_map(since).collect()
    }

    const BEFORE: &str = "cpu  10 0 20 300 0 0 1 70 0 0\n\
                          cpu0 5 0 10 150 0 0 0 30 0 0\n\
                          cpu1 5 0 10 150 0 0 1 40 0 0\n\
                          intr 1 2 3 4 5 6 7 8 9\nctxt 7\n";

    #[test]
    fn what_the_hypervisor_tells_is_counted_from_the_start() {
        let now = "cpu  0 0 0 0 0 0 0 90 0 0\ncpu0 0 0 0 0 0 0 0 45 0 0\n\
                   cpu1 0 0 0 0 0 0 0 45 0 0\n";
        assert_eq!((of_all(BEFORE), of_all(now)), (Some(70), Some(90)));
        assert_eq!((cpu_ticks(BEFORE), cpu_ticks("")), (Some(401), None));
        assert_eq!(after(&[BEFORE, now]), [15, 5]);
    }

    #[test]
    fn one_that_tells_nothing_is_told_from_no_figure() {
        let nothing = "cpu  1 2 3 4 5 6 7 0 0 0\ncpu0 1 2 3 4 5 6 7 0 0 0\n";
        assert_eq!((of_all(nothing), after(&[nothing, nothing])), (Some(0), vec![0]));
        let old = "cpu  1 2 3 4 5 6 7\ncpu0 1 2 3 4 5 6 7\nintr 9\n";
        assert_eq!((of_all(old), after(&[old, old])), (None, vec![]));
        assert_eq!((of_all(""), after(&["", "cpu\ncpux 1"])), (None, vec![]));
    }

    #[test]
    fn a_vcpu_that_goes_keeps_what_it_had_and_one_that_comes_begins_at_nothing() {
        let gone = "cpu  0 0 0 0 0 0 0 33 0 0\ncpu0 0 0 0 0 0 0 0 33 0 0\n";
        let come = "cpu0 0 0 0 0 0 0 0 34 0 0\ncpu1 0 0 0 0 0 0 0 46 0 0\n\
                    cpu2 0 0 0 0 0 0 0 9 0 0\ncpu7 0 0 0 0 0 0 0 9 0 0\n";
        assert_eq!(after(&[BEFORE, gone]), [3, 0]);
        assert_eq!(after(&[BEFORE, gone, come]), [4, 6, 0]);
        let mut steal = Steal { seen: vec![None] };
        steal.cover(3);
        steal.cover(2);
        steal.look(come);
        assert_eq!(steal.seen, [Some((34, 34)), Some((46, 46)), Some((9, 9))]);
    }
}
