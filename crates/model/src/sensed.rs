//! A guest's findings, compared with the ground truth.

use serde::{Deserialize, Serialize};

use crate::episode::{Cause, Wait};

/// Bounds in microseconds between which off intervals are counted together; the last
/// class has no upper bound.
pub const LENGTHS_US: [u64; 4] = [300, 1_000, 3_000, 10_000];

/// The classes' lower bounds in milliseconds, as names.
pub const LENGTH_NAMES: [&str; 4] = ["0.3", "1", "3", "10"];

/// What is known beforehand of a workload's waits: one vCPU has what another one wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownWaits {
    /// What is waited for.
    pub wait: Wait,
    /// The vCPU that is waited for.
    pub vcpu: u16,
    /// Why a wait lasts, when that one is not off.
    pub otherwise: Cause,
}

/// Waits with one real cause, and one reported cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseCount {
    /// Why they lasted.
    pub real: Cause,
    /// Why the guest said that they lasted.
    pub told: Cause,
    /// How many.
    pub waits: u64,
}

/// How well a guest's own findings agree with what its host saw.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SenseCheck {
    /// Off intervals that really were, by class of [`LENGTHS_US`]: how many, and how
    /// many of them the guest found (it knows of at least half of their length).
    pub by_length: Vec<[u64; 2]>,
    /// Off intervals that the guest found.
    pub found: u64,
    /// Those of them that really were (at least half of what the guest was sure of).
    pub real: u64,
    /// Found length less true length of each pair that belongs together, in
    /// microseconds: 5th percentile, median, 95th percentile.
    pub length_error_us: Option<[f64; 3]>,
    /// Looks at vCPUs that had been off for a millisecond or more, and those that said so.
    pub looks_off: [u64; 2],
    /// Looks at vCPUs that were on or idle, and those that did not say that they are off.
    pub looks_not_off: [u64; 2],
    /// vCPU-seconds off that the guest found, and those that really were.
    pub off_s: [f64; 2],
    /// Waits of a millisecond or more whose causes are known beforehand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseCount>,
    /// Seconds that those were kept waiting by an off vCPU: as the guest reported, and really.
    #[serde(default)]
    pub kept_s: [f64; 2],
    /// Heartbeats that the guest added, per second and vCPU.
    pub beats_per_s: f64,
    /// Findings lost.
    pub lost: u64,
}

impl SenseCheck {
    /// Counts waits.
    pub fn add_waits(&mut self, real: Cause, told: Cause, waits: u64) {
        let known = self.causes.iter_mut().find(|count| (count.real, count.told) == (real, told));
        match known {
            Some(count) => count.waits += waits,
            None => self.causes.push(CauseCount { real, told, waits }),
        }
    }

    /// Several runs as one: counts are summed; of all other figures the median is
    /// taken.
    pub fn all<'a>(checks: impl IntoIterator<Item = &'a SenseCheck>) -> Option<SenseCheck> {
        let checks: Vec<&SenseCheck> = checks.into_iter().collect();
        let mut sum =
            SenseCheck { by_length: vec![[0; 2]; LENGTHS_US.len()], ..SenseCheck::default() };
        for check in &checks {
            for (sum, one) in sum.by_length.iter_mut().zip(&check.by_length) {
                *sum = pair(*sum, *one);
            }
            sum.found += check.found;
            sum.real += check.real;
            sum.looks_off = pair(sum.looks_off, check.looks_off);
            sum.looks_not_off = pair(sum.looks_not_off, check.looks_not_off);
            sum.off_s = [sum.off_s[0] + check.off_s[0], sum.off_s[1] + check.off_s[1]];
            sum.lost += check.lost;
            sum.kept_s = [sum.kept_s[0] + check.kept_s[0], sum.kept_s[1] + check.kept_s[1]];
            for count in &check.causes {
                sum.add_waits(count.real, count.told, count.waits);
            }
        }
        let errors = checks.iter().filter_map(|check| check.length_error_us);
        let errors: Vec<[f64; 3]> = errors.collect();
        let error = |at: usize| middle(errors.iter().map(|error| error[at]).collect());
        sum.length_error_us = error(0).zip(error(1)).zip(error(2)).map(|((a, b), c)| [a, b, c]);
        sum.beats_per_s = middle(checks.iter().map(|check| check.beats_per_s).collect())?;
        Some(sum)
    }
}

fn pair(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    [a[0] + b[0], a[1] + b[1]]
}

/// The median; the mean of the two middle figures where their number is even.
fn middle(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let at = figures.len() / 2;
    let upper = figures.get(at).copied()?;
    let lower = if figures.len() % 2 == 0 { figures[at - 1] } else { upper };
    Some((lower + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_several_runs_are_their_medians() {
        let check = |beats: f64| SenseCheck {
            beats_per_s: beats,
            length_error_us: Some([-beats, 0.0, beats]),
            ..SenseCheck::default()
        };
        let of = |beats: &[f64]| {
            let checks: Vec<SenseCheck> = beats.iter().map(|beats| check(*beats)).collect();
            SenseCheck::all(&checks).map(|all| (all.beats_per_s, all.length_error_us))
        };
        assert_eq!(of(&[1.0, 9.0, 2.0, 4.0]), Some((3.0, Some([-3.0, 0.0, 3.0]))));
        assert_eq!(of(&[9.0, 1.0, 2.0]), Some((2.0, Some([-2.0, 0.0, 2.0]))));
        assert_eq!(of(&[]), None);
    }
}
