//! A permutation test of the difference between two cells.
//!
//! If two cells do not differ, their runs could as well carry each other's labels. The test counts
//! the arrangements of the labels whose statistic is at least as extreme as the observed one.
//! Sources: Fisher, "The Design of Experiments", 1935; Pitman, "Significance tests which may be
//! applied to samples from any populations", 1937; Good, "Permutation, Parametric and Bootstrap
//! Tests of Hypotheses", 3rd edition, 2005. The statistic is the sum of one side's ranks (Wilcoxon,
//! "Individual comparisons by ranking methods", 1945; Mann and Whitney, 1947). A single outlier
//! moves it little, and runs that did not finish tie at the bottom with mid-ranks. The test is
//! two-sided: "extreme" is the distance from the statistic's expectation.
//!
//! **Exact or drawn.** The test need not list the arrangements. It adds one run after the other to
//! find how many arrangements have each rank sum: the shift algorithm of Streitberg and Röhmel
//! ("Exact distributions for permutation and rank tests", 1986). Twice a mid-rank is an integer, so
//! ties are exact, too. It does so for up to about 80 runs. Beyond, it draws 19,999 random
//! arrangements. The observed one counts as one of them, so that p is never 0 (Phipson and Smyth,
//! "Permutation p-values should never be zero", 2010).
//!
//! **Free or within blocks.** Two tests fit the design, in which each cell runs once in each block:
//!
//! - [`blocked_rank_sum_p`] exchanges labels only within blocks. It is right whatever the blocks
//!   have in common. But with one run a cell and block, only 2^n arrangements exist: with 10
//!   blocks, the smallest p is 2/1024 = 0.002. Holm's correction over 50 comparisons raises that to
//!   0.098, so no difference could ever be shown, however large.
//! - [`rank_sum_p`] exchanges labels freely. With 10 and 10 runs, its smallest p is 2/184,756 =
//!   0.00001, which leaves 0.0005 after 50 comparisons.
//!
//! The verdict uses the free test, which stays valid here. Both cells have a run in each block, so
//! the common state of a block moves both sides alike and cancels out of the difference. The free
//! exchange still counts that state as noise. Strong block effects therefore make the free test
//! conservative: they cost power and add no false positives. (That is no longer exact if one side
//! lost many blocks; the report counts such losses.) The interval of the ratio, which resamples
//! blocks, uses the gain from pairing, and the verdict needs both.
//!
//! Few runs bound p from below: see [`smallest_p`]. 3 and 3 runs can show nothing, 4 and 4 one
//! comparison at a time, 5 and 5 up to six.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

use crate::{Run, ranks, speeds};

/// Number of random arrangements drawn if there are too many to count.
const DRAWN_ARRANGEMENTS: u32 = 19_999;
/// Maximum number of additions of the exact count: they take under a tenth of a second.
const MAX_ADDITIONS: usize = 20_000_000;

/// Returns the two-sided p of the rank-sum test with free exchange of labels; 1 if one side is
/// empty. The seed matters only if arrangements are drawn.
pub fn rank_sum_p(subject: &[f64], baseline: &[f64], seed: u64) -> f64 {
    let pooled = [subject, baseline].concat();
    let doubled_ranks = doubled(&ranks(&pooled));
    Test::new(vec![Stratum { doubled_ranks, chosen: subject.len() }]).p(seed)
}

/// Returns the two-sided p of the rank-sum test with exchange of labels only within blocks. Blocks
/// that lack one side do not count; if all do, p is 1.
pub fn blocked_rank_sum_p(subject: &[Run], baseline: &[Run], seed: u64) -> f64 {
    let ranked = doubled(&ranks(&[speeds(subject), speeds(baseline)].concat()));
    let mut strata: BTreeMap<u32, Stratum> = BTreeMap::new();
    for (index, run) in subject.iter().chain(baseline).enumerate() {
        let stratum = strata.entry(run.block).or_default();
        stratum.doubled_ranks.push(ranked[index]);
        stratum.chosen += usize::from(index < subject.len());
    }
    Test::new(strata.into_values().collect()).p(seed)
}

/// Returns the smallest p that [`rank_sum_p`] can give for that many runs a side: only the two
/// arrangements with all of one side on top are as extreme. (With ties and sides of unequal size,
/// one of them alone can be: half of this.)
pub fn smallest_p(subject: usize, baseline: usize) -> f64 {
    let arrangements = (1..=subject.min(baseline))
        .fold(1.0, |count, i| count * (subject.max(baseline) + i) as f64 / i as f64);
    (2.0 / arrangements).min(1.0)
}

fn doubled(ranks: &[f64]) -> Vec<usize> {
    ranks.iter().map(|rank| (2.0 * rank) as usize).collect()
}

/// Runs among which labels are exchanged; the subject's come first.
#[derive(Debug, Default)]
struct Stratum {
    doubled_ranks: Vec<usize>,
    chosen: usize,
}

impl Stratum {
    fn observed(&self) -> usize {
        self.doubled_ranks[..self.chosen].iter().sum()
    }

    fn total(&self) -> usize {
        self.doubled_ranks.iter().sum()
    }

    /// Returns how many choices of `chosen` runs have each sum of doubled ranks.
    fn sums(&self) -> Vec<f64> {
        let width = self.total() + 1;
        let mut counts = vec![vec![0.0; width]; self.chosen + 1];
        counts[0][0] = 1.0;
        for &rank in &self.doubled_ranks {
            for taken in (1..=self.chosen).rev() {
                let (without, with) = counts.split_at_mut(taken);
                for (to, from) in with[0][rank..].iter_mut().zip(&without[taken - 1]) {
                    *to += from;
                }
            }
        }
        counts.swap_remove(self.chosen)
    }
}

/// The strata and their observed sum.
struct Test {
    strata: Vec<Stratum>,
    observed: usize,
    expected: f64,
}

impl Test {
    /// Creates the test without the strata of one side only, which are the same in every
    /// arrangement.
    fn new(mut strata: Vec<Stratum>) -> Self {
        strata.retain(|s| s.chosen > 0 && s.chosen < s.doubled_ranks.len());
        let observed = strata.iter().map(Stratum::observed).sum();
        let mean = |s: &Stratum| s.total() as f64 * s.chosen as f64 / s.doubled_ranks.len() as f64;
        let expected = strata.iter().map(mean).sum();
        Test { strata, observed, expected }
    }

    fn p(self, seed: u64) -> f64 {
        if self.additions() <= MAX_ADDITIONS { self.exact() } else { self.drawn(seed) }
    }

    fn additions(&self) -> usize {
        let of = |s: &Stratum| s.doubled_ranks.len() * s.chosen * s.total();
        let widths: usize = self.strata.iter().map(Stratum::total).sum();
        let joining: usize = self.strata.iter().skip(1).map(|s| s.total() * widths).sum();
        self.strata.iter().map(of).sum::<usize>() + joining
    }

    /// Returns whether a sum is at least as far from the expectation as the observed one. Sums are
    /// integers; the slack covers the rounding of the expectation.
    fn extreme(&self, sum: usize) -> bool {
        let distance = |sum: usize| (sum as f64 - self.expected).abs();
        distance(sum) >= distance(self.observed) - 1e-6
    }

    fn exact(&self) -> f64 {
        let counts = self.strata.iter().map(Stratum::sums).fold(vec![1.0], |a, b| convolve(&a, &b));
        let all: f64 = counts.iter().sum();
        let extreme: f64 = (0..counts.len()).filter(|&s| self.extreme(s)).map(|s| counts[s]).sum();
        (extreme / all).min(1.0)
    }

    fn drawn(mut self, seed: u64) -> f64 {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut extreme = 0;
        for _ in 0..DRAWN_ARRANGEMENTS {
            for stratum in &mut self.strata {
                stratum.doubled_ranks.shuffle(&mut rng);
            }
            extreme += u32::from(self.extreme(self.strata.iter().map(Stratum::observed).sum()));
        }
        f64::from(extreme + 1) / f64::from(DRAWN_ARRANGEMENTS + 1)
    }
}

/// Returns how many pairs have each sum. Few sums occur, so empty ones are skipped.
fn convolve(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; a.len() + b.len() - 1];
    for (i, &x) in a.iter().enumerate().filter(|(_, x)| **x > 0.0) {
        for (j, &y) in b.iter().enumerate().filter(|(_, y)| **y > 0.0) {
            out[i + j] += x * y;
        }
    }
    out
}

#[cfg(test)]
#[path = "permutation_tests.rs"]
mod tests;
