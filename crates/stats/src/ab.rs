//! Comparison of two ways of doing the same work, in pairs of rounds: the order of the rounds, the
//! verdict, and the number of pairs that would show a difference of a given size.
//!
//! The rounds of a pair follow each other, so they share the state of the host, which may drift far
//! from pair to pair. So both speeds of a pair are first divided by their geometric mean, which
//! removes what they share. The ratio of medians is then the median of the pairs' ratios, and the
//! exchange of labels within pairs is Wilcoxon's signed-rank test ("Individual comparisons by
//! ranking methods", Biometrics Bulletin 1(6), 1945). In a simulation of 20 pairs that drift by
//! 30 % with noise of 2 %, 79 % of 300 trials show a gain of 5 % without that division. With it,
//! 97 % show the gain, with only 10 pairs.
//!
//! The rule is that of [`crate::effect`]: a p below the level, an interval of the ratio that
//! excludes 1, and an effect worth reporting. p needs no correction, because there is only one
//! comparison.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::{Difference, Rule, Run, Verdict, blocked_rank_sum_p, compare};

/// Minimum number of pairs. Fewer can show nothing: 2 of the 2^5 exchanges within five pairs are
/// 6 %.
pub const PAIRS_MIN: u32 = 6;
/// Normal quantile of an interval of 96.5 %. A percentile interval of a ratio of medians covers
/// that much, see [`crate::bootstrap`].
const LEVEL: f64 = 2.11;
/// Normal quantile of a power of 80 %.
const POWER: f64 = 0.842;
/// Variance of a median relative to that of the mean, for normal values.
const MEDIAN_VARIANCE: f64 = std::f64::consts::FRAC_PI_2;

/// Returns, for each pair, whether the subject comes first. The second of two successive pairs
/// mirrors the first (ABBA or BAAB, at random). So each side comes first equally often, and a
/// steady drift cancels out. The last pair of an odd number is random.
pub fn order(pairs: u32, seed: u64) -> Vec<bool> {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut first: Vec<bool> = (0..pairs.div_ceil(2))
        .flat_map(|_| {
            let subject_first: bool = rng.random();
            [subject_first, !subject_first]
        })
        .collect();
    first.truncate(pairs as usize);
    first
}

/// Difference that the pairs show, and its verdict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// Ratio of speeds, subject to baseline, and its p.
    pub difference: Difference,
    /// Verdict on the subject: better means faster.
    pub verdict: Verdict,
}

/// Judges pairs of speeds `(subject, baseline)`, one round each. Returns `None` for fewer than
/// [`PAIRS_MIN`] pairs.
pub fn decide(pairs: &[(f64, f64)], seed: u64) -> Option<Decision> {
    if pairs.len() < PAIRS_MIN as usize {
        return None;
    }
    let run = |(speed, block)| Run { block, speed };
    let (subject, baseline): (Vec<f64>, Vec<f64>) = pairs.iter().map(|pair| alike(*pair)).unzip();
    let subject: Vec<Run> = subject.into_iter().zip(0..).map(run).collect();
    let baseline: Vec<Run> = baseline.into_iter().zip(0..).map(run).collect();
    let p = blocked_rank_sum_p(&subject, &baseline, seed);
    let difference = Difference { p, ..compare(&subject, &baseline, seed)? };
    let verdict = Rule::default().verdict(&difference, p);
    Some(Decision { difference, verdict })
}

/// Removes from a pair what its rounds share. A speed of 0 stays 0, and the other speed of its pair
/// becomes infinite, because no pair can be further apart.
fn alike((subject, baseline): (f64, f64)) -> (f64, f64) {
    if subject == 0.0 || baseline == 0.0 {
        let unbounded = |speed: f64| if speed > 0.0 { f64::INFINITY } else { 0.0 };
        return (unbounded(subject), unbounded(baseline));
    }
    let root = (subject / baseline).sqrt();
    (root, 1.0 / root)
}

/// Returns how many pairs would show a ratio of `1 + effect` with a probability of about 80 %, if
/// they vary as these do. Returns `None` if fewer than two pairs have a ratio.
///
/// The number is the sample size of a paired comparison, by the standard deviation of the
/// logarithms of the ratios (Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988,
/// chapter 2), times the price of comparing medians. A simulation in `tests/it/ab.rs` confirms it.
pub fn pairs_to_show(effect: f64, pairs: &[(f64, f64)]) -> Option<u32> {
    let logs: Vec<f64> = pairs
        .iter()
        .map(|(subject, baseline)| (subject / baseline).ln())
        .filter(|log| log.is_finite())
        .collect();
    let degrees = logs.len().checked_sub(1).filter(|degrees| *degrees > 0)? as f64;
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / degrees;
    let needed = MEDIAN_VARIANCE * variance * ((LEVEL + POWER) / effect.ln_1p()).powi(2);
    Some((needed.ceil().min(f64::from(u32::MAX)) as u32).max(PAIRS_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_random_and_balanced() {
        let first = order(10, 1);
        assert_eq!(first.iter().filter(|first| **first).count(), 5);
        assert!(first.chunks(2).all(|two| two[0] != two[1]), "{first:?}");
        assert!((0..9).any(|seed| order(10, seed) != first));
        assert_eq!(order(10, 1), first);
        assert_eq!(order(7, 1).len(), 7);
        assert!(order(0, 1).is_empty());
    }

    #[test]
    fn few_pairs_have_no_verdict() {
        assert_eq!(decide(&[(2.0, 1.0); 5], 1), None);
        assert_eq!(decide(&[(2.0, 1.0); 6], 1).unwrap().verdict, Verdict::Better);
    }

    #[test]
    fn a_steady_gain_is_found_however_far_the_pairs_drift() {
        let drifting: Vec<(f64, f64)> =
            (0..8).map(|i| 1.5f64.powi(i)).map(|x| (1.1 * x, x)).collect();
        assert_eq!(decide(&drifting, 1).unwrap().verdict, Verdict::Better);
        let back: Vec<(f64, f64)> = drifting.iter().map(|(a, b)| (*b, *a)).collect();
        assert_eq!(decide(&back, 1).unwrap().verdict, Verdict::Worse);
    }

    #[test]
    fn rounds_that_got_nothing_done_count() {
        assert_eq!(decide(&[(2.0, 0.0); 6], 1).unwrap().verdict, Verdict::Better);
        assert_eq!(decide(&[(0.0, 2.0); 6], 1).unwrap().verdict, Verdict::Worse);
        assert_eq!(decide(&[(0.0, 0.0); 6], 1).unwrap().verdict, Verdict::NoDifferenceShown);
    }

    #[test]
    fn the_ratio_is_the_median_of_the_pairs_ratios() {
        let pairs = [1.1, 1.3, 0.9, 1.2, 1.15, 1.25, 1.05].map(|ratio| (3.0 * ratio, 3.0));
        let ratio = decide(&pairs, 1).unwrap().difference.ratio.unwrap();
        assert!((ratio.value - 1.15).abs() < 1e-9, "{ratio:?}");
    }

    #[test]
    fn a_round_that_got_nothing_done_is_further_apart_than_any_other() {
        let mut pairs = vec![(1.44, 1.0); 3];
        pairs.push((0.81, 1.0));
        pairs.extend([(5.0, 0.0); 3]);
        let found = decide(&pairs, 1).unwrap().difference;
        assert!((found.ratio.unwrap().value - 1.44).abs() < 1e-9, "{found:?}");
        // Wilcoxon: of 2^7 combinations of signs, those of rank 1 and of no rank, in both
        // directions.
        assert!((found.p - 4.0 / 128.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn pairs_grow_with_the_square_of_the_noise() {
        let pairs = |noise: f64| [(1.0 + noise, 1.0), (1.0, 1.0 + noise), (1.0, 1.0), (1.0, 1.0)];
        assert_eq!(pairs_to_show(0.05, &pairs(0.0)), Some(6));
        let [few, many] = [0.1, 0.2].map(|noise| pairs_to_show(0.05, &pairs(noise)).unwrap());
        assert!((3.3..4.2).contains(&(f64::from(many) / f64::from(few))), "{few} {many}");
        assert_eq!(pairs_to_show(0.05, &[(1.0, 1.0)]), None);
        assert_eq!(pairs_to_show(0.05, &[(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)]), None);
    }
}
