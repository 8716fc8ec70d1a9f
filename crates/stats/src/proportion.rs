//! The interval of a proportion.

use crate::Interval;

/// The normal distribution's quantile at 97.5 %.
const Z_95: f64 = 1.959963984540054;

/// Returns `hits` of `trials` as a share, with Wilson's score interval at 95 %; `None` for no
/// trials. Unlike the textbook's p ± 1.96 se, it is sound near 0, where rates of false positives
/// are.
///
/// Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the
/// American Statistical Association 22, 1927.
pub fn wilson(hits: u64, trials: u64) -> Option<Interval> {
    if trials == 0 {
        return None;
    }
    let (n, share) = (trials as f64, hits as f64 / trials as f64);
    let z2 = Z_95 * Z_95;
    let centre = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let variance = share * (1.0 - share) / n + z2 / (4.0 * n * n);
    let half = Z_95 * variance.sqrt() / (1.0 + z2 / n);
    // At the ends, rounding may step beyond the share or the range.
    let lo = (centre - half).clamp(0.0, share);
    let hi = (centre + half).clamp(share, 1.0);
    Some(Interval { value: share, lo, hi })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_scipy() {
        // scipy.stats.binomtest(hits, 200).proportion_ci(method='wilson'), SciPy 1.17.1.
        for (hits, lo, hi) in [
            (7, 0.0170555420085672, 0.07047061152229074),
            (0, 0.0, 0.018845326377266575),
            (200, 0.9811546736227335, 1.0),
        ] {
            let found = wilson(hits, 200).unwrap();
            assert!((found.lo - lo).abs() < 1e-12 && (found.hi - hi).abs() < 1e-12, "{found:?}");
        }
        assert_eq!(wilson(0, 0), None);
    }
}
