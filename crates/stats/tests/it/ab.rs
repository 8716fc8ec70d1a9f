//! Verdicts on simulated pairs whose answer is known.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use unspin_stats::Verdict::{Better, NoDifferenceShown, Worse};
use unspin_stats::ab::{decide, pairs_to_show};

/// Returns exp(sigma * z), with z by the method of Box and Muller.
fn lognormal(rng: &mut Pcg64, sigma: f64) -> f64 {
    let (u, v): (f64, f64) = (rng.random(), rng.random());
    (sigma * (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()).exp()
}

/// Parameters of a simulation.
#[derive(Debug, Clone, Copy)]
struct Truth {
    /// Speed of the subject relative to the baseline's.
    ratio: f64,
    /// Standard deviation of the logarithm of a round's speed.
    noise: f64,
    /// Standard deviation of the logarithm that the rounds of a pair share.
    drift: f64,
    pairs: usize,
}

impl Truth {
    fn pairs(self, rng: &mut Pcg64) -> Vec<(f64, f64)> {
        let pair = |_| {
            let host = lognormal(rng, self.drift);
            let [subject, baseline] =
                [self.ratio, 1.0].map(|speed| speed * host * lognormal(rng, self.noise));
            (subject, baseline)
        };
        (0..self.pairs).map(pair).collect()
    }

    /// Returns how many of `count` trials have each verdict: better, worse, no difference shown.
    fn verdicts(self, seed: u64, count: u64) -> [u64; 3] {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut found = [0; 3];
        for seed in 0..count {
            let verdict = decide(&self.pairs(&mut rng), seed).expect("enough pairs").verdict;
            found[[Better, Worse, NoDifferenceShown]
                .iter()
                .position(|v| *v == verdict)
                .expect("one")] += 1;
        }
        found
    }
}

/// Eighty trials of ten pairs, and the one verdict that is right. Without a difference, chance may
/// call one in twenty. The noise of the last case exceeds that of most machines.
#[test]
fn the_verdict_is_right() {
    let truth = |ratio, noise| Truth { ratio, noise, drift: 0.1, pairs: 10 };
    let mut wrong = Vec::new();
    for (truth, right) in [
        (truth(1.0, 0.02), NoDifferenceShown),
        (truth(1.05, 0.015), Better),
        (truth(1.0 / 1.2, 0.05), Worse),
        (truth(1.0, 0.2), NoDifferenceShown),
    ] {
        let found = truth.verdicts(6, 20);
        let right = [Better, Worse, NoDifferenceShown].iter().position(|v| *v == right);
        wrong.push(20 - found[right.expect("one of them")]);
    }
    assert!(wrong.iter().sum::<u64>() <= 1, "{wrong:?}");
}

#[test]
fn no_difference_is_called_one_in_at_most_twenty_times() {
    for (noise, pairs) in [(0.1, 6), (0.3, 10), (0.1, 25)] {
        let truth = Truth { ratio: 1.0, noise, drift: 0.3, pairs };
        let [better, worse, _] = truth.verdicts(9, 200);
        // At most 5 % are expected; the bound leaves room for the draw.
        assert!(better + worse <= 14, "{truth:?}: {better} + {worse} of 200");
    }
}

/// Follows the advice on the number of pairs: of 200 users who get the median advice after ten
/// pairs, about 80 % see the difference.
#[test]
fn as_many_pairs_as_advised_show_the_difference() {
    for (noise, drift, effect) in [(0.04, 0.3, 0.05), (0.1, 0.0, 0.1), (0.15, 0.2, 0.2)] {
        let mut rng = Pcg64::seed_from_u64(5);
        let first = Truth { ratio: 1.0, noise, drift, pairs: 10 };
        let mut advice: Vec<u32> = (0..200)
            .map(|_| pairs_to_show(effect, &first.pairs(&mut rng)).expect("they vary"))
            .collect();
        advice.sort_unstable();
        let then = Truth { ratio: 1.0 + effect, pairs: advice[100] as usize, ..first };
        let [shown, wrong, _] = then.verdicts(7, 200);
        assert!((130..=190).contains(&shown) && wrong == 0, "{then:?}: {shown} of 200, {wrong}");
    }
}
