//! Rank correlation.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

use crate::ranks;

/// Number of random pairings drawn for the p of a correlation.
const DRAWN_PAIRINGS: u32 = 19_999;

/// A rank correlation, and its p under the hypothesis of none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Correlation {
    /// Spearman's coefficient, from -1 to 1.
    pub rho: f64,
    /// Two-sided p of a permutation test.
    pub p: f64,
}

/// Returns Spearman's rank correlation of pairs: the correlation of their mid-ranks. Returns `None`
/// for fewer than 3 pairs, or if one of the two sides does not vary.
///
/// Spearman, "The proof and measurement of association between two things", The American Journal of
/// Psychology 15(1), 1904.
pub fn spearman(pairs: &[(f64, f64)]) -> Option<f64> {
    let (x, y) = centred_ranks(pairs)?;
    Some(dot(&x, &y) / scale(&x, &y))
}

/// Returns [`spearman`] with its p: the share of 19,999 random pairings and the observed one whose
/// correlation is at least as large in size.
pub fn spearman_test(pairs: &[(f64, f64)], seed: u64) -> Option<Correlation> {
    let (x, mut y) = centred_ranks(pairs)?;
    let (observed, scale) = (dot(&x, &y), scale(&x, &y));
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut extreme = 0;
    for _ in 0..DRAWN_PAIRINGS {
        y.shuffle(&mut rng);
        // The slack covers sums that differ only by the order of their terms.
        extreme += u32::from(dot(&x, &y).abs() >= observed.abs() - 1e-9 * scale);
    }
    let p = f64::from(extreme + 1) / f64::from(DRAWN_PAIRINGS + 1);
    Some(Correlation { rho: observed / scale, p })
}

fn centred_ranks(pairs: &[(f64, f64)]) -> Option<(Vec<f64>, Vec<f64>)> {
    let mean = (pairs.len() + 1) as f64 / 2.0;
    let centred = |values: Vec<f64>| ranks(&values).iter().map(|r| r - mean).collect::<Vec<_>>();
    let x = centred(pairs.iter().map(|pair| pair.0).collect());
    let y = centred(pairs.iter().map(|pair| pair.1).collect());
    (pairs.len() >= 3 && scale(&x, &y) > 0.0).then_some((x, y))
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(a, b)| a * b).sum()
}

fn scale(x: &[f64], y: &[f64]) -> f64 {
    (dot(x, x) * dot(y, y)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(x: &[f64], y: &[f64]) -> Vec<(f64, f64)> {
        x.iter().copied().zip(y.iter().copied()).collect()
    }

    #[test]
    fn matches_scipy() {
        // scipy.stats.spearmanr, SciPy 1.17.1.
        let iq = [106.0, 100.0, 86.0, 101.0, 99.0, 103.0, 97.0, 113.0, 112.0, 110.0];
        let tv = [7.0, 27.0, 2.0, 50.0, 28.0, 29.0, 20.0, 12.0, 6.0, 17.0];
        assert!((spearman(&pairs(&iq, &tv)).unwrap() + 0.17575757575757575).abs() < 1e-12);
        let (x, y) = ([1.0, 1.0, 2.0, 2.0, 3.0, 3.0], [2.0, 1.0, 2.0, 4.0, 4.0, 9.0]);
        assert!((spearman(&pairs(&x, &y)).unwrap() - 0.8616404368553291).abs() < 1e-12);
        // scipy.stats.permutation_test(permutation_type='pairings') over all
        // 5,040 pairings; the bound is five standard errors of the draw.
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let y = [2.0, 1.0, 4.0, 3.0, 7.0, 6.0, 5.0];
        let found = spearman_test(&pairs(&x, &y), 3).unwrap();
        assert!((found.p - EXACT_P_7).abs() < 5.0 * (EXACT_P_7 / 19_999.0_f64).sqrt(), "{found:?}");
    }

    const EXACT_P_7: f64 = 0.048015873015873;

    #[test]
    fn constant_or_few_values_have_no_correlation() {
        assert_eq!(spearman(&[(1.0, 1.0), (2.0, 2.0)]), None);
        assert_eq!(spearman(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(spearman_test(&[], 1), None);
    }
}
