//! Fairness of sharing a resource.

/// Returns Jain's fairness index: 1 if all shares are equal, 1/n if one has everything. Returns
/// `None` for no shares, or if none is above 0.
///
/// Jain, Chiu and Hawe, "A Quantitative Measure of Fairness and Discrimination for Resource
/// Allocation in Shared Computer Systems", DEC-TR-301, 1984.
pub fn jain(shares: &[f64]) -> Option<f64> {
    // Scaling by the largest share keeps squares from overflowing.
    let largest = shares.iter().copied().fold(0.0, f64::max);
    let scaled = || shares.iter().map(|share| share / largest);
    let sum: f64 = scaled().sum();
    let squares: f64 = scaled().map(|share| share * share).sum();
    (largest > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_all_equal_to_one_has_all() {
        assert_eq!(jain(&[2.0, 2.0, 2.0]), Some(1.0));
        assert_eq!(jain(&[5.0, 0.0, 0.0, 0.0]), Some(0.25));
        // (1 + 3)^2 / (2 * (1 + 9))
        assert!((jain(&[1.0, 3.0]).unwrap() - 0.8).abs() < 1e-12);
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[0.0, 0.0]), None);
    }
}
