//! Quantiles of the values that many runs counted, all of them taken together.
//!
//! The values of a run depend on each other, but the runs of different blocks do not. So a resample
//! draws blocks, each with all of its values, as in Davison and Hinkley, "Bootstrap Methods and
//! their Application", 1997, section 3.8.

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::{Bootstrap, Interval};

/// Returns values in ascending order, each with how often it occurred. They are rounded to three
/// digits: equal ones become one, and none is off by more than 0.5 %.
pub fn counted(values: impl IntoIterator<Item = f64>) -> Vec<(f64, u64)> {
    let mut rounded: Vec<f64> = values.into_iter().map(to_three_digits).collect();
    rounded.sort_by(f64::total_cmp);
    rounded.chunk_by(|a, b| a == b).map(|equal| (equal[0], equal.len() as u64)).collect()
}

fn to_three_digits(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// The values of a cell's runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// Index of each block in the rows' counts.
    places: BTreeMap<u32, usize>,
    /// Every value in ascending order, with the number of each block's values that are not above
    /// it.
    rows: Vec<(f64, Vec<u64>)>,
}

impl Pool {
    /// Pools the values of blocks, each in the form that [`counted`] returns.
    pub fn new(blocks: &BTreeMap<u32, &[(f64, u64)]>) -> Pool {
        let places = blocks.keys().copied().zip(0..).collect();
        let mut all: Vec<f64> = blocks.values().flat_map(|of| of.iter().map(|v| v.0)).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        let mut rest: Vec<&[(f64, u64)]> = blocks.values().copied().collect();
        let mut up_to = vec![0; blocks.len()];
        let mut row = |value: f64| {
            for (count, rest) in up_to.iter_mut().zip(&mut rest) {
                let here = rest.partition_point(|next| next.0 <= value);
                *count += rest[..here].iter().map(|next| next.1).sum::<u64>();
                *rest = &rest[here..];
            }
            (value, up_to.clone())
        };
        let rows = all.into_iter().map(&mut row).collect();
        Pool { places, rows }
    }

    /// Returns the quantile at `q` of the values of these blocks; a block that occurs twice counts
    /// twice. Returns `None` if they have no values.
    ///
    /// Definition 1 of Hyndman and Fan, "Sample quantiles in statistical packages", The American
    /// Statistician 50(4), 1996: always one of the values.
    pub fn quantile(&self, blocks: &[u32], q: f64) -> Option<f64> {
        let drawn: Vec<usize> = blocks.iter().filter_map(|b| self.places.get(b).copied()).collect();
        let up_to = |row: &(f64, Vec<u64>)| drawn.iter().map(|place| row.1[*place]).sum::<u64>();
        let n = self.rows.last().map(up_to).filter(|n| *n > 0)?;
        let rank = ((q * n as f64).ceil() as u64).max(1);
        let at = self.rows.partition_point(|row| up_to(row) < rank);
        Some(self.rows[at].0)
    }
}

impl Bootstrap {
    /// Returns a figure of pools and its interval. `figure` gets all blocks of the pools first, and
    /// then the blocks of each resample, the same ones for all pools. Returns `None` if all blocks
    /// together have no figure; leaves out a resample without one.
    pub fn of_pools(
        &self,
        pools: &[&Pool],
        figure: impl Fn(&[u32]) -> Option<f64>,
    ) -> Option<Interval> {
        let blocks: BTreeSet<u32> =
            pools.iter().flat_map(|pool| pool.places.keys().copied()).collect();
        let blocks: Vec<u32> = blocks.into_iter().collect();
        let value = figure(&blocks)?;
        let mut rng = Pcg64::seed_from_u64(self.seed);
        let mut drawn = blocks.clone();
        let mut resample = |_| {
            drawn.fill_with(|| blocks[rng.random_range(0..blocks.len())]);
            figure(&drawn)
        };
        let draws = (0..self.resamples).filter_map(&mut resample).collect();
        Some(self.interval(value, draws))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(blocks: &[(u32, &[(f64, u64)])]) -> Pool {
        Pool::new(&blocks.iter().copied().collect())
    }

    #[test]
    fn values_that_round_to_the_same_are_counted_together() {
        let found = counted([4003.0, 0.0, 2.4, 3997.0, 12_345.0, 2.4]);
        assert_eq!(found, [(0.0, 1), (2.4, 2), (4000.0, 2), (12_300.0, 1)]);
    }

    #[test]
    fn a_quantile_is_that_of_all_values_together() {
        let pool = pool(&[(0, &[(1.0, 3), (5.0, 1)]), (7, &[(2.0, 4), (5.0, 2)])]);
        let sorted = [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 5.0, 5.0, 5.0];
        for percent in 0..=100 {
            let rank = (percent * sorted.len()).div_ceil(100).max(1);
            let q = percent as f64 / 100.0;
            assert_eq!(pool.quantile(&[0, 7], q), Some(sorted[rank - 1]), "{percent}");
        }
        assert_eq!(pool.quantile(&[0, 0, 0], 0.5), Some(1.0));
        assert_eq!(pool.quantile(&[7], 0.5), Some(2.0));
        assert_eq!(pool.quantile(&[3], 0.5), None, "no such block");
        assert_eq!(self::pool(&[(0, &[])]).quantile(&[0], 0.5), None);
    }

    #[test]
    fn an_interval_is_over_blocks() {
        let equal = pool(&[(0, &[(4.0, 100)]), (1, &[(4.0, 100)]), (2, &[(4.0, 100)])]);
        let median = |pool: &Pool| {
            Bootstrap::seeded(1).of_pools(&[pool], |blocks| pool.quantile(blocks, 0.5)).unwrap()
        };
        assert_eq!(median(&equal), Interval { value: 4.0, lo: 4.0, hi: 4.0 });
        let apart = pool(&[(0, &[(1.0, 100)]), (1, &[(4.0, 100)]), (2, &[(9.0, 100)])]);
        assert_eq!(median(&apart), Interval { value: 4.0, lo: 1.0, hi: 9.0 });
    }

    #[test]
    fn blocks_are_common_to_both_sides_of_a_ratio() {
        let half = pool(&[(0, &[(1.0, 9)]), (1, &[(4.0, 9)]), (2, &[(9.0, 9)])]);
        let whole = pool(&[(0, &[(2.0, 9)]), (1, &[(8.0, 9)]), (2, &[(18.0, 9)])]);
        let ratio =
            |blocks: &[u32]| Some(half.quantile(blocks, 0.9)? / whole.quantile(blocks, 0.9)?);
        let found = Bootstrap::seeded(1).of_pools(&[&half, &whole], ratio).unwrap();
        assert_eq!(found, Interval { value: 0.5, lo: 0.5, hi: 0.5 });
    }
}
