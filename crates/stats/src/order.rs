//! Order statistics: medians, quantiles and ranks.

/// Returns the quantile at `q` (0 to 1) by linear interpolation between the order statistics;
/// `None` for no values.
///
/// Definition 7 of Hyndman and Fan, "Sample quantiles in statistical packages", The American
/// Statistician 50(4), 1996; the default of R and NumPy.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile_of_sorted(&sorted, q)
}

/// Returns the [`quantile`] of values in ascending order.
pub fn quantile_of_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    // Equal neighbours may be infinite; their difference would not be a number.
    Some(if below == above { below } else { below + (at - at.floor()) * (above - below) })
}

/// Returns the median: the mean of the two middle values if their number is even.
pub fn median(values: &[f64]) -> Option<f64> {
    median_in(&mut values.to_vec())
}

/// Returns the [`median`], reordering the values in place.
pub(crate) fn median_in(values: &mut [f64]) -> Option<f64> {
    middle(values).map(|(lower, upper)| mean(lower, upper))
}

/// Returns the median of speeds, of which 0 means "did not finish": 0 if at least half of the runs
/// did not finish.
///
/// With exactly half of them unfinished, the two middle values are 0 and the speed of the slowest
/// run that finished. Their mean would be a speed at which no run ran.
pub fn median_speed(speeds: &[f64]) -> Option<f64> {
    median_speed_in(&mut speeds.to_vec())
}

/// Returns the [`median_speed`], reordering the values in place.
pub(crate) fn median_speed_in(speeds: &mut [f64]) -> Option<f64> {
    middle(speeds).map(|(lower, upper)| if lower == 0.0 { 0.0 } else { mean(lower, upper) })
}

fn mean(a: f64, b: f64) -> f64 {
    if a == b { a } else { a / 2.0 + b / 2.0 }
}

/// Returns the two middle values, or the same one twice if their number is odd.
fn middle(values: &mut [f64]) -> Option<(f64, f64)> {
    if values.is_empty() {
        return None;
    }
    let even = values.len() % 2 == 0;
    let (below, upper, _) = values.select_nth_unstable_by(values.len() / 2, f64::total_cmp);
    let lower = below.iter().copied().max_by(f64::total_cmp).filter(|_| even);
    Some((lower.unwrap_or(*upper), *upper))
}

/// Returns the rank of each value, from 1; equal values share the mean of their ranks (mid-ranks).
pub fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    for tied in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let end = start + tied.len();
        for &index in tied {
            ranks[index] = (start + 1 + end) as f64 / 2.0;
        }
        start = end;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_ranks_match_numpy_and_scipy() {
        // numpy.quantile and scipy.stats.rankdata, SciPy 1.17.1.
        let values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0];
        for (q, expected) in [(0.0, 1.0), (0.1, 1.0), (0.25, 1.75), (0.5, 3.5), (0.9, 6.9)] {
            assert!((quantile(&values, q).unwrap() - expected).abs() < 1e-12, "q = {q}");
        }
        let ranked = ranks(&[3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0]);
        assert_eq!(ranked, [4.0, 1.5, 5.0, 1.5, 6.5, 9.0, 3.0, 8.0, 6.5]);
    }

    #[test]
    fn medians_of_odd_even_one_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn half_unfinished_is_a_median_speed_of_zero() {
        assert_eq!(median(&[0.0, 0.0, 4.0, 6.0]), Some(2.0));
        assert_eq!(median_speed(&[0.0, 0.0, 4.0, 6.0]), Some(0.0));
        assert_eq!(median_speed(&[0.0, 2.0, 4.0, 6.0]), Some(3.0));
        assert_eq!(median_speed(&[0.0, 0.0, 4.0, 5.0, 6.0]), Some(4.0));
    }

    #[test]
    fn infinite_neighbours_have_an_infinite_quantile() {
        let sorted = [1.0, f64::INFINITY, f64::INFINITY];
        assert_eq!(quantile_of_sorted(&sorted, 0.9), Some(f64::INFINITY));
    }
}
