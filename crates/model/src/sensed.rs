//! A guest's findings, compared with the ground truth.

use serde::{Deserialize, Serialize};

use crate::episode::{Cause, Wait};

/// Bounds of the classes of off intervals by length, in microseconds; the last class has no upper
/// bound.
pub const LENGTHS_US: [u64; 4] = [300, 1_000, 3_000, 10_000];

/// Names of the classes: their lower bounds in milliseconds.
pub const LENGTH_NAMES: [&str; 4] = ["0.3", "1", "3", "10"];

/// Known facts about a workload's waits: one vCPU has what another one wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownWaits {
    /// Object of the waits.
    pub wait: Wait,
    /// The vCPU that the waits are for.
    pub vcpu: u16,
    /// Cause of a wait if that vCPU is not off.
    pub otherwise: Cause,
}

/// Number of waits with one real and one reported cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseCount {
    /// Real cause of the waits.
    pub real: Cause,
    /// Cause that the guest reported.
    pub told: Cause,
    /// Number of waits.
    pub waits: u64,
}

/// Agreement of a guest's own findings with what its host saw.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SenseCheck {
    /// For each class of [`LENGTHS_US`], the number of true off intervals, and the number of those
    /// that the guest found (it knows of at least half of their length).
    pub by_length: Vec<[u64; 2]>,
    /// Number of off intervals that the guest found.
    pub found: u64,
    /// Number of them that are true (at least half of what the guest was sure of).
    pub real: u64,
    /// Found length less true length of each pair that belongs together, in microseconds: 5th
    /// percentile, median, 95th percentile.
    pub length_error_us: Option<[f64; 3]>,
    /// Number of looks at vCPUs that had been off for a millisecond or more, and of those that
    /// found them off.
    pub looks_off: [u64; 2],
    /// Number of looks at vCPUs that were on or idle, and of those that did not find them off.
    pub looks_not_off: [u64; 2],
    /// vCPU-seconds off: found by the guest, and true.
    pub off_s: [f64; 2],
    /// Waits of a millisecond or more whose causes are known beforehand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseCount>,
    /// Seconds for which an off vCPU prolonged these waits: as the guest reported, and true.
    #[serde(default)]
    pub kept_s: [f64; 2],
    /// Heartbeats that the guest added, per second and vCPU.
    pub beats_per_s: f64,
    /// Number of findings lost.
    pub lost: u64,
}

impl SenseCheck {
    /// Adds waits with a real and a reported cause.
    pub fn add_waits(&mut self, real: Cause, told: Cause, waits: u64) {
        let known = self.causes.iter_mut().find(|count| (count.real, count.told) == (real, told));
        match known {
            Some(count) => count.waits += waits,
            None => self.causes.push(CauseCount { real, told, waits }),
        }
    }

    /// Combines several runs: sums counts and seconds, and takes the median of the length errors
    /// and of the heartbeats.
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

/// Returns the median: the mean of the two middle figures if their number is even.
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
