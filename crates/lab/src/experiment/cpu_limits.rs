//! A guest's limits on the simulated pCPUs: `cpu_weight` and `cpu_max`, as in a cgroup's files.

use unspin_wire::{CpuLimits, CpuMax};

/// The kernel's default period, and the shortest and longest one.
const PERIOD_US: u64 = 100_000;
const PERIODS_US: std::ops::RangeInclusive<u64> = 1_000..=1_000_000;
/// The kernel's shortest quota, and a quota that no machine can use up.
const QUOTAS_US: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000;

/// Returns the weight in units of `cpu.weight`, or why it is invalid.
pub(super) fn weight(weight: u32) -> Result<u32, String> {
    match weight {
        1..=10_000 => Ok(weight),
        _ => Err("`cpu_weight` is a cgroup's `cpu.weight`: 1 to 10000".into()),
    }
}

/// Parses `QUOTA PERIOD` or `QUOTA` in microseconds, or `max`. Returns an error if it is invalid.
pub(super) fn max(text: &str) -> Result<Option<CpuMax>, String> {
    let wrong = || {
        "`cpu_max` is a cgroup's `cpu.max`: \"QUOTA PERIOD\" in microseconds, such as \"200000 100000\""
            .to_owned()
    };
    let mut words = text.split_ascii_whitespace();
    let quota = words.next().ok_or_else(wrong)?;
    let period_us = match words.next() {
        Some(period) => period.parse().map_err(|_| wrong())?,
        None => PERIOD_US,
    };
    if words.next().is_some() {
        return Err(wrong());
    }
    if !PERIODS_US.contains(&period_us) {
        return Err("the period of `cpu_max` is 1000 to 1000000 microseconds".into());
    }
    if quota == "max" {
        return Ok(None);
    }
    let quota_us = quota.parse().map_err(|_| wrong())?;
    if !QUOTAS_US.contains(&quota_us) {
        return Err("the quota of `cpu_max` is 1000 to 1000000000 microseconds".into());
    }
    Ok(Some(CpuMax { quota_us, period_us }))
}

/// Returns why a guest cannot have these limits on its host, or `None` if it can.
pub(super) fn unfit(limits: &CpuLimits, per_vm: bool, beside_others: bool) -> Option<&'static str> {
    let needs_group = limits.max.is_some() && beside_others && !per_vm;
    needs_group.then_some("`cpu_max` beside a neighbour needs `fairness = \"per-vm\"`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_as_in_a_cgroup() {
        let half = CpuMax { quota_us: 50_000, period_us: 100_000 };
        assert_eq!(max("50000 100000"), Ok(Some(half)));
        assert_eq!(max("50000"), Ok(Some(half)));
        assert_eq!(max("max 20000"), Ok(None));
        assert_eq!((weight(1), weight(10_000)), (Ok(1), Ok(10_000)));
    }

    #[test]
    fn what_the_kernel_would_refuse_is_refused() {
        for text in [
            "",
            "200%",
            "1 2 3",
            "-5",
            "50000 x",
            "999",
            "20000000000000000",
            "50000 999",
            "50000 1000001",
        ] {
            assert!(max(text).is_err(), "{text}");
        }
        assert!(weight(0).is_err() && weight(10_001).is_err());
    }

    #[test]
    fn a_quota_is_of_a_vm_as_a_whole() {
        let max = Some(CpuMax { quota_us: 50_000, period_us: 100_000 });
        let limits = CpuLimits { max, ..CpuLimits::default() };
        assert!(unfit(&limits, false, true).is_some());
        for (per_vm, beside_others) in [(true, true), (false, false), (true, false)] {
            assert_eq!(unfit(&limits, per_vm, beside_others), None);
        }
        assert_eq!(unfit(&CpuLimits::default(), false, true), None);
    }
}
