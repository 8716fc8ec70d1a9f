//! Correction of p values for many comparisons.

/// Returns Holm's step-down adjusted p values, in the order of the input. At a level of 5 % of the
/// adjusted values, the chance of even one false difference among all comparisons is at most 5 %,
/// however they depend on each other.
///
/// Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
/// Statistics 6(2), 1979.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut floor: f64 = 0.0;
    for (step, index) in order.into_iter().enumerate() {
        floor = floor.max(p[index] * (p.len() - step) as f64).min(1.0);
        adjusted[index] = floor;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // 4 * 0.005, 3 * 0.01, 2 * 0.03, and 0.04 raised to the one before.
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (got, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((got - expected).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(holm(&[0.6, 0.7]), [1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }
}
