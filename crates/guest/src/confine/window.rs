//! What all vCPUs did in a window of time.

use unspin_policy::confine::Facts;

/// Sums over all vCPUs since the start, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) now_ns: u64,
    pub(super) idle_ns: u64,
    pub(super) off_ns: u64,
    pub(super) spin_ns: u64,
}

impl Sums {
    /// What happened since `before`. An off interval counts where it ends, and can be longer
    /// than the window.
    pub(super) fn since(&self, before: &Sums, vcpus: u32) -> Facts {
        let window_ns = self.now_ns.saturating_sub(before.now_ns).max(1);
        let all_ns = window_ns * u64::from(vcpus);
        let wanted_ns = all_ns - self.idle_ns.saturating_sub(before.idle_ns).min(all_ns);
        let off_ns = self.off_ns.saturating_sub(before.off_ns).min(wanted_ns);
        let spin_ns = self.spin_ns.saturating_sub(before.spin_ns).min(wanted_ns);
        let thousandths = |ns: u64| (ns * 1_000 / window_ns) as u32;
        Facts {
            on_m: thousandths(wanted_ns - off_ns),
            off_m: thousandths(off_ns),
            spin_m: thousandths(spin_ns),
        }
    }
}

/// Some of the vCPUs as the kernel writes a set of them: `0-1,3`.
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

/// The vCPUs of such a list.
pub(super) fn cpus(list: &str) -> Vec<u32> {
    let range = |range: &str| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some(from.parse().ok()?..=to.parse::<u32>().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_s_time_is_on_off_or_idle() {
        let before = Sums { now_ns: 50, idle_ns: 7, off_ns: 100, spin_ns: 9 };
        let now = Sums { now_ns: 10_050, idle_ns: 10_007, off_ns: 12_100, spin_ns: 3_009 };
        let facts = now.since(&before, 4);
        assert_eq!(facts, Facts { on_m: 1_800, off_m: 1_200, spin_m: 300 });
        let late = Sums { off_ns: 90_000, ..now }.since(&before, 4);
        assert_eq!(late, Facts { on_m: 0, off_m: 3_000, spin_m: 300 });
        assert_eq!(before.since(&before, 4), Facts { on_m: 4_000, ..Facts::default() });
    }

    #[test]
    fn sets_are_written_as_the_kernel_does() {
        for text in ["0", "0-1", "0,2-3", "1,3,5-7"] {
            assert_eq!(list(&cpus(text)), text);
        }
        assert_eq!((list(&[]), cpus("\n")), (String::new(), vec![]));
    }
}
