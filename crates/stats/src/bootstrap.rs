//! Bootstrap intervals of a median, of a ratio and of a difference of two medians, and of
//! shares of what was counted in many runs.
//!
//! The runs are resampled with replacement, the figure is computed from each
//! resample, and the middle 95 % of the results are the interval: the
//! percentile interval of Efron and Tibshirani, "An Introduction to the
//! Bootstrap", 1993, chapter 13. It assumes no distribution, so runs that did
//! not finish (speed 0) need no special case, and it follows a change of units.
//!
//! Why not BCa (chapter 14 there)? Its acceleration comes from leaving single
//! runs out, which for a median says little: the median of n - 1 runs takes two
//! or three different values. In a simulation of 1,500 lognormal samples for
//! each of n = 5, 10, 20, both covered the true median in 93 to 95 % of the
//! cases, with equal widths to within 1 %. So the simpler one is used. For the
//! ratio of two medians the percentile interval covers 96 to 97 %.
//!
//! **Blocks.** Every cell runs once in each block, so what a block has in common
//! (the state of the host at that time) is in both cells. [`Bootstrap::blocked_ratio`]
//! draws blocks, not runs: what is common then cancels out of the ratio.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::order::{median_speed_in, quantile_of_sorted};
use crate::{Run, median, median_speed, speeds};

/// An estimate and its interval; `lo <= value <= hi`. `hi` is infinite where
/// resamples have a baseline that did not finish.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}

/// How an interval is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bootstrap {
    /// How many resamples.
    pub resamples: usize,
    /// The share of the resamples within the interval.
    pub level: f64,
    /// Seed of the draws.
    pub seed: u64,
}

impl Bootstrap {
    /// 9,999 resamples, 95 %.
    pub fn seeded(seed: u64) -> Self {
        Bootstrap { resamples: 9_999, level: 0.95, seed }
    }

    /// The median speed and its interval; `None` for no runs.
    pub fn median(&self, speeds: &[f64]) -> Option<Interval> {
        let value = median_speed(speeds)?;
        let mut rng = Pcg64::seed_from_u64(self.seed);
        let mut resample = Vec::new();
        let draws = (0..self.resamples)
            .filter_map(|_| median_speed_in(draw(speeds, &mut rng, &mut resample)))
            .collect();
        Some(self.interval(value, draws))
    }

    /// The ratio of two independent samples' median speeds and its interval;
    /// `None` where one has no runs or the baseline's median is 0.
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

    /// The ratio of two cells' median speeds and its interval, resampling the
    /// blocks in which either of them has a run; `None` as in [`Bootstrap::ratio`].
    ///
    /// A block that misses one of the two adds its run to the other side only.
    pub fn blocked_ratio(&self, subject: &[Run], baseline: &[Run]) -> Option<Interval> {
        let value = ratio_of_medians(&speeds(subject), &speeds(baseline))?;
        let blocks = by_block(subject, baseline);
        let mut rng = Pcg64::seed_from_u64(self.seed);
        let (mut above, mut below) = (Vec::new(), Vec::new());
        let mut draws = Vec::with_capacity(self.resamples);
        for _ in 0..self.resamples {
            above.clear();
            below.clear();
            for _ in 0..blocks.len() {
                let (of_subject, of_baseline) = &blocks[rng.random_range(0..blocks.len())];
                above.extend(of_subject);
                below.extend(of_baseline);
            }
            // A resample without a run on one side has no ratio: leave it out.
            let medians = median_speed_in(&mut above).zip(median_speed_in(&mut below));
            draws.extend(medians.map(|(above, below)| ratio(above, below)));
        }
        Some(self.interval(value, draws))
    }

    /// The difference of two independent samples' medians and its interval; `None` where one
    /// is empty. A value of 0 is one like any other here.
    pub fn difference(&self, subject: &[f64], baseline: &[f64]) -> Option<Interval> {
        let value = median(subject)? - median(baseline)?;
        let mut rng = Pcg64::seed_from_u64(self.seed);
        let (mut more, mut less) = (Vec::new(), Vec::new());
        let draws = (0..self.resamples)
            .filter_map(|_| {
                let more = median(draw(subject, &mut rng, &mut more))?;
                Some(more - median(draw(baseline, &mut rng, &mut less))?)
            })
            .collect();
        Some(self.interval(value, draws))
    }

    /// A figure of many cells' ratios, such as their geometric mean, and its interval. Each
    /// pair is a subject and its baseline, whose runs are resampled as in
    /// [`Bootstrap::ratio`]; `None` where a pair has no ratio or there is no pair.
    pub fn of_ratios(
        &self,
        pairs: &[(Vec<f64>, Vec<f64>)],
        figure: impl Fn(&[f64]) -> f64,
    ) -> Option<Interval> {
        let found: Option<Vec<f64>> = pairs.iter().map(|(a, b)| ratio_of_medians(a, b)).collect();
        let value = figure(&found.filter(|ratios| !ratios.is_empty())?);
        let draws = self.draws_of_ratios(pairs.iter().map(|(a, b)| (&a[..], &b[..])), figure);
        Some(self.interval(value, draws))
    }

    /// What such a figure comes to by chance alone: each sample is held against itself, both
    /// drawn anew, and the value is the median of the draws. `None` where there is no sample, or
    /// one that is empty.
    pub fn by_chance(
        &self,
        samples: &[Vec<f64>],
        figure: impl Fn(&[f64]) -> f64,
    ) -> Option<Interval> {
        let draws = self.draws_of_ratios(samples.iter().map(|s| (&s[..], &s[..])), figure);
        Some(self.interval(median(&draws)?, draws))
    }

    /// The figure of the ratios of each resample; none where there is no pair, or one without runs.
    fn draws_of_ratios<'a>(
        &self,
        pairs: impl Iterator<Item = (&'a [f64], &'a [f64])> + Clone,
        figure: impl Fn(&[f64]) -> f64,
    ) -> Vec<f64> {
        let mut rng = Pcg64::seed_from_u64(self.seed);
        let (mut above, mut below) = (Vec::new(), Vec::new());
        let mut resample = || -> Option<f64> {
            let ratios: Option<Vec<f64>> = pairs
                .clone()
                .map(|(subject, baseline)| {
                    let above = median_speed_in(draw(subject, &mut rng, &mut above))?;
                    let below = median_speed_in(draw(baseline, &mut rng, &mut below))?;
                    Some(ratio(above, below))
                })
                .collect();
            ratios.filter(|ratios| !ratios.is_empty()).map(|ratios| figure(&ratios))
        };
        (0..self.resamples).map_while(|_| resample()).collect()
    }

    /// A part of a whole, each summed over the runs of all cells, and its interval. A run is
    /// `[part, whole]`; each cell's runs are resampled. What is counted within a run may have
    /// as much in common as it likes, as in Davison and Hinkley, "Bootstrap Methods and their
    /// Application", 1997, section 3.8, where clusters are resampled. `None` where the whole is 0.
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

    /// The middle of the draws. In tiny samples the estimate can lie outside of
    /// it; an interval without its estimate would mislead, so it is widened.
    fn interval(&self, value: f64, mut draws: Vec<f64>) -> Interval {
        draws.sort_by(f64::total_cmp);
        let tail = (1.0 - self.level) / 2.0;
        let end = |q| quantile_of_sorted(&draws, q).unwrap_or(value);
        Interval { value, lo: end(tail).min(value), hi: end(1.0 - tail).max(value) }
    }
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

/// Draws as many values as there are, with replacement, into `into`.
fn draw<'a>(from: &[f64], rng: &mut Pcg64, into: &'a mut Vec<f64>) -> &'a mut [f64] {
    into.clear();
    into.extend((0..from.len()).map(|_| from[rng.random_range(0..from.len())]));
    into
}

/// The speeds of both sides, block by block. Sorted, so that the result does
/// not depend on the order of the runs.
fn by_block(subject: &[Run], baseline: &[Run]) -> Vec<(Vec<f64>, Vec<f64>)> {
    let mut blocks: BTreeMap<u32, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for run in subject {
        blocks.entry(run.block).or_default().0.push(run.speed);
    }
    for run in baseline {
        blocks.entry(run.block).or_default().1.push(run.speed);
    }
    blocks.into_values().collect()
}

#[cfg(test)]
#[path = "bootstrap_tests.rs"]
mod tests;
