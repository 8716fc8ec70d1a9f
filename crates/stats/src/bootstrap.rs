//! Bootstrap intervals of a median, of the ratio and of the difference of two medians, and of
//! shares counted over many runs.
//!
//! The bootstrap resamples the runs with replacement and computes the figure from each resample.
//! The middle 95 % of the results are the interval: the percentile interval of Efron and
//! Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13. It assumes no distribution, so
//! runs that did not finish (speed 0) need no special case, and it follows a change of units.
//!
//! Why not BCa (chapter 14 there)? It computes its acceleration from samples that leave out one run
//! each, which say little about a median: the median of n - 1 runs takes two or three different
//! values. In a simulation of 1,500 lognormal samples for each of n = 5, 10, 20, both methods
//! covered the true median in 93 to 95 % of the cases, with equal widths to within 1 %. So this
//! crate uses the simpler one. For the ratio of two medians, the percentile interval covers 96 to
//! 97 %.
//!
//! **Blocks.** Every cell runs once in each block, so both cells share the state of the host during
//! a block. [`Bootstrap::blocked_ratio`] and [`Bootstrap::of_ratios`] draw blocks instead of runs,
//! so that the common part cancels out of a ratio. [`Bootstrap::ratio`] is for cells that ran in
//! different blocks.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::order::{median_in, median_speed_in, quantile_of_sorted};
use crate::{Run, median, median_speed, speeds};

/// An estimate and its interval; `lo <= value <= hi`. `hi` is infinite if the baseline did not
/// finish in some resamples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}

/// Settings for drawing an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bootstrap {
    /// Number of resamples.
    pub resamples: usize,
    /// Share of the resamples within the interval.
    pub level: f64,
    /// Seed of the draws.
    pub seed: u64,
}

impl Bootstrap {
    /// Returns the defaults: 9,999 resamples, 95 %.
    pub fn seeded(seed: u64) -> Self {
        Bootstrap { resamples: 9_999, level: 0.95, seed }
    }

    /// Returns the median speed and its interval; `None` for no runs.
    pub fn median(&self, speeds: &[f64]) -> Option<Interval> {
        self.middle_of(speeds, median_speed_in)
    }

    /// Returns the same for figures that need not be speeds: a value of 0 is one like any other.
    pub fn median_of_figures(&self, figures: &[f64]) -> Option<Interval> {
        self.middle_of(figures, median_in)
    }

    fn middle_of(&self, values: &[f64], of: fn(&mut [f64]) -> Option<f64>) -> Option<Interval> {
        let value = of(&mut values.to_vec())?;
        let mut rng = Pcg64::seed_from_u64(self.seed);
        let mut resample = Vec::new();
        let draws =
            (0..self.resamples).filter_map(|_| of(draw(values, &mut rng, &mut resample))).collect();
        Some(self.interval(value, draws))
    }

    /// Returns the ratio of the median speeds of two samples that share no blocks, and its
    /// interval; `None` if one has no runs or the baseline's median is 0.
    pub fn ratio(&self, subject: &[f64], baseline: &[f64]) -> Option<Interval> {
        let value = ratio_of_medians(subject, baseline)?;
        let mut rng = Pcg64::seed_from_u64(self.seed);
        let (mut above, mut below) = (Vec::new(), Vec::new());
        let draws = (0..self.resamples)
            .filter_map(|_| {
                let above = median_speed_in(draw(subject, &mut rng, &mut above))?;
                let below = median_speed_in(draw(baseline, &mut rng, &mut below))?;
                Some(ratio(above, below))
            })
            .collect();
        Some(self.interval(value, draws))
    }

    /// Returns the ratio of two cells' median speeds and its interval. Resamples the blocks in
    /// which either of them has a run; returns `None` as [`Bootstrap::ratio`] does.
    ///
    /// A block in which one of the two has no run adds only the other one's run.
    pub fn blocked_ratio(&self, subject: &[Run], baseline: &[Run]) -> Option<Interval> {
        let value = ratio_of_medians(&speeds(subject), &speeds(baseline))?;
        let draws = self.block_draws(&[(subject, baseline)], |drawn| ratio_of(&mut drawn[0]));
        Some(self.interval(value, draws))
    }

    /// Returns the same for figures that need not be speeds: a value of 0 is one like any other.
    pub fn blocked_ratio_of_figures(&self, subject: &[Run], baseline: &[Run]) -> Option<Interval> {
        let (above, below) = (median(&speeds(subject))?, median(&speeds(baseline))?);
        let draws = self.block_draws(&[(subject, baseline)], |drawn| {
            let (above, below) = &mut drawn[0];
            Some(ratio(median_in(above)?, median_in(below)?))
        });
        (below > 0.0).then(|| self.interval(ratio(above, below), draws))
    }

    /// Returns the difference of two cells' medians and its interval, resampling blocks as
    /// [`Bootstrap::blocked_ratio`] does; `None` if one is empty. The figures need not be speeds: a
    /// value of 0 is one like any other here.
    pub fn blocked_difference(&self, subject: &[Run], baseline: &[Run]) -> Option<Interval> {
        let value = median(&speeds(subject))? - median(&speeds(baseline))?;
        let draws = self.block_draws(&[(subject, baseline)], |drawn| {
            let (more, less) = &drawn[0];
            Some(median(more)? - median(less)?)
        });
        Some(self.interval(value, draws))
    }

    /// Returns a figure of many cells' ratios, such as their geometric mean, and its interval. Each
    /// pair is a subject and its baseline. A resample draws the same blocks for all pairs, so that
    /// cells keep what they share in a block. Returns `None` without pairs, if a side has no runs,
    /// or if the figure is not a number, such as the mean of 0 and infinity.
    pub fn of_ratios(
        &self,
        pairs: &[(&[Run], &[Run])],
        figure: impl Fn(&[f64]) -> f64,
    ) -> Option<Interval> {
        let of = |(a, b): &(&[Run], &[Run])| {
            Some(ratio(median_speed(&speeds(a))?, median_speed(&speeds(b))?))
        };
        let number = |ratios: &[f64]| Some(figure(ratios)).filter(|value| !value.is_nan());
        let found: Option<Vec<f64>> = pairs.iter().map(of).collect();
        let value = number(&found.filter(|ratios| !ratios.is_empty())?)?;
        let draws = self.block_draws(pairs, |drawn| {
            let ratios: Option<Vec<f64>> = drawn.iter_mut().map(ratio_of).collect();
            number(&ratios?)
        });
        Some(self.interval(value, draws))
    }

    /// Returns the value that such a figure has by chance alone, with its interval. Compares each
    /// sample with itself in other resampled blocks; the value is the median of the draws. Returns
    /// `None` if `samples` or one of them is empty.
    ///
    /// Here, the state of the host in a block does not cancel out as it does between two cells that
    /// ran in the same blocks. So the draws scatter at least as far as chance does.
    pub fn by_chance(
        &self,
        samples: &[&[Run]],
        figure: impl Fn(&[f64]) -> f64,
    ) -> Option<Interval> {
        if samples.is_empty() || samples.iter().any(|sample| sample.is_empty()) {
            return None;
        }
        let empty: &[Run] = &[];
        let pairs: Vec<(&[Run], &[Run])> = samples.iter().map(|sample| (*sample, empty)).collect();
        let medians = |seed| {
            Bootstrap { seed, ..*self }.block_draws(&pairs, |drawn| {
                drawn.iter_mut().map(|(speeds, _)| median_speed_in(speeds)).collect()
            })
        };
        let against = |(above, below): (Vec<f64>, Vec<f64>)| {
            let ratios: Vec<f64> = above.iter().zip(below).map(|(a, b)| ratio(*a, b)).collect();
            figure(&ratios)
        };
        let (above, below) = (medians(self.seed), medians(!self.seed));
        let draws: Vec<f64> = above.into_iter().zip(below).map(against).collect();
        Some(self.interval(median(&draws)?, draws))
    }

    /// Computes a figure of each resample of the blocks in which any of the pairs has a run.
    /// `figure` gets the drawn speeds of each pair. Leaves out a resample for which `figure`
    /// returns none because a side got no run.
    fn block_draws<T>(
        &self,
        pairs: &[(&[Run], &[Run])],
        mut figure: impl FnMut(&mut [Sides]) -> Option<T>,
    ) -> Vec<T> {
        let blocks = by_block(pairs);
        let mut rng = Pcg64::seed_from_u64(self.seed);
        let mut drawn = vec![Sides::default(); pairs.len()];
        let mut resample = |_| {
            drawn.iter_mut().for_each(|(above, below)| {
                above.clear();
                below.clear();
            });
            for _ in 0..blocks.len() {
                let block = &blocks[rng.random_range(0..blocks.len())];
                for ((above, below), (of_subject, of_baseline)) in drawn.iter_mut().zip(block) {
                    above.extend(of_subject);
                    below.extend(of_baseline);
                }
            }
            figure(&mut drawn)
        };
        (0..self.resamples).filter_map(&mut resample).collect()
    }

    /// Returns the share of a part in a whole, each summed over the runs of all cells, and its
    /// interval. A run is `[part, whole]`; each cell's runs are resampled. The events within a run
    /// may depend on each other in any way, as in Davison and Hinkley, "Bootstrap Methods and their
    /// Application", 1997, section 3.8, where clusters are resampled. Returns `None` if the whole
    /// is 0.
    pub fn share(&self, cells: &[Vec<[f64; 2]>]) -> Option<Interval> {
        let value = part_of_whole(cells.iter().flatten())?;
        let mut rng = Pcg64::seed_from_u64(self.seed);
        let mut drawn = Vec::new();
        let mut resample = || {
            drawn.clear();
            for runs in cells {
                drawn.extend((0..runs.len()).map(|_| &runs[rng.random_range(0..runs.len())]));
            }
            part_of_whole(drawn.iter().copied())
        };
        let draws = (0..self.resamples).filter_map(|_| resample()).collect();
        Some(self.interval(value, draws))
    }

    /// Returns the middle of the draws. In tiny samples, the estimate can lie outside of it. An
    /// interval without its estimate would mislead, so this one is widened to include it.
    pub(crate) fn interval(&self, value: f64, mut draws: Vec<f64>) -> Interval {
        draws.sort_by(f64::total_cmp);
        let tail = (1.0 - self.level) / 2.0;
        let end = |q| quantile_of_sorted(&draws, q).unwrap_or(value);
        Interval { value, lo: end(tail).min(value), hi: end(1.0 - tail).max(value) }
    }
}

/// Speeds of a subject and of its baseline.
type Sides = (Vec<f64>, Vec<f64>);

/// Returns the ratio of their medians; `None` if a side is empty.
fn ratio_of((above, below): &mut Sides) -> Option<f64> {
    Some(ratio(median_speed_in(above)?, median_speed_in(below)?))
}

/// Returns the ratio of the median speeds of two cells, without an interval. The ratio is infinite
/// if only the baseline did not finish, and 1 if neither did. Returns `None` if one has no runs.
pub fn ratio_of_speeds(subject: &[Run], baseline: &[Run]) -> Option<f64> {
    Some(ratio(median_speed(&speeds(subject))?, median_speed(&speeds(baseline))?))
}

/// Returns the same for figures that need not be speeds; `None` also if a median is below 0.
pub fn ratio_of_figures(subject: &[Run], baseline: &[Run]) -> Option<f64> {
    let (above, below) = (median(&speeds(subject))?, median(&speeds(baseline))?);
    (above >= 0.0 && below >= 0.0).then(|| ratio(above, below))
}

fn ratio_of_medians(subject: &[f64], baseline: &[f64]) -> Option<f64> {
    let (above, below) = (median_speed(subject)?, median_speed(baseline)?);
    (below > 0.0).then(|| ratio(above, below))
}

fn part_of_whole<'a>(runs: impl Iterator<Item = &'a [f64; 2]>) -> Option<f64> {
    let [part, whole] = runs.fold([0.0; 2], |sum, run| [sum[0] + run[0], sum[1] + run[1]]);
    (whole > 0.0).then(|| part / whole)
}

/// Two sides that both did not finish are equal, and so are two infinite ones.
fn ratio(above: f64, below: f64) -> f64 {
    if above == below { 1.0 } else { above / below }
}

/// Draws as many values as `from` has, with replacement, into `into`.
fn draw<'a>(from: &[f64], rng: &mut Pcg64, into: &'a mut Vec<f64>) -> &'a mut [f64] {
    into.clear();
    into.extend((0..from.len()).map(|_| from[rng.random_range(0..from.len())]));
    into
}

/// Returns the speeds of both sides of each pair, block by block. They are sorted, so that the
/// result does not depend on the order of the runs.
fn by_block(pairs: &[(&[Run], &[Run])]) -> Vec<Vec<Sides>> {
    let mut blocks: BTreeMap<u32, Vec<Sides>> = BTreeMap::new();
    let empty = || vec![Sides::default(); pairs.len()];
    for (index, (subject, baseline)) in pairs.iter().enumerate() {
        for run in *subject {
            blocks.entry(run.block).or_insert_with(empty)[index].0.push(run.speed);
        }
        for run in *baseline {
            blocks.entry(run.block).or_insert_with(empty)[index].1.push(run.speed);
        }
    }
    blocks.into_values().collect()
}

#[cfg(test)]
#[path = "bootstrap_tests.rs"]
mod tests;
