use super::*;

fn runs(speeds: &[f64]) -> Vec<Run> {
    speeds.iter().zip(0..).map(|(&speed, block)| Run { block, speed }).collect()
}

fn close(p: f64, expected: f64) {
    assert!((p - expected).abs() < 1e-12, "{p}, expected {expected}");
}

#[test]
fn matches_scipy_exactly() {
    // scipy.stats.mannwhitneyu(method='exact'), SciPy 1.17.1.
    let x = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06];
    let y = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 3.24];
    close(rank_sum_p(&x, &y, 0), MANN_WHITNEY_P);
    // scipy.stats.permutation_test over all arrangements, with ties.
    let x = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30];
    let y = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.24, 1.29];
    close(rank_sum_p(&x, &y, 0), 0.12990538872891813);
    let (x, y) = ([0.0, 0.0, 0.0, 5.0, 6.0], [4.0, 5.0, 7.0, 8.0, 9.0, 10.0]);
    close(rank_sum_p(&x, &y, 0), 0.032467532467532464);
    // The same with permutation_type='samples': exchange within pairs.
    let x = [5.0, 6.0, 7.0, 8.0, 9.0, 10.5, 4.0, 3.0];
    let y = [4.0, 6.5, 5.0, 5.0, 7.0, 8.0, 3.5, 3.2];
    close(blocked_rank_sum_p(&runs(&x), &runs(&y), 0), 0.0390625);
}

const MANN_WHITNEY_P: f64 = 0.33566433566433573;

#[test]
fn the_floors_that_decide_between_the_two_tests() {
    let low: Vec<f64> = (1..=10).map(f64::from).collect();
    let high: Vec<f64> = low.iter().map(|v| v + 100.0).collect();
    close(rank_sum_p(&high, &low, 0), 2.0 / 184_756.0);
    close(blocked_rank_sum_p(&runs(&high), &runs(&low), 0), 2.0 / 1024.0);
    close(smallest_p(10, 10), 2.0 / 184_756.0);
    close(smallest_p(4, 4), 2.0 / 70.0);
    close(smallest_p(0, 4), 1.0);
}

#[test]
fn nothing_to_exchange_is_p_1() {
    close(rank_sum_p(&[], &[1.0], 0), 1.0);
    close(rank_sum_p(&[3.0; 5], &[3.0; 5], 0), 1.0);
    close(blocked_rank_sum_p(&runs(&[1.0, 2.0])[..1], &runs(&[1.0, 2.0])[1..], 0), 1.0);
}

#[test]
fn drawn_arrangements_agree_with_the_exact_count() {
    let x: Vec<f64> = (0..12).map(|i| f64::from(i * 5 % 12) + 2.0).collect();
    let y: Vec<f64> = (0..12).map(|i| f64::from(i * 7 % 12)).collect();
    let pooled = doubled(&ranks(&[x.clone(), y.clone()].concat()));
    let test = Test::new(vec![Stratum { doubled_ranks: pooled, chosen: 12 }]);
    let exact = test.exact();
    let drawn = test.drawn(5);
    assert!((exact - drawn).abs() < 5.0 * (exact / 19_999.0).sqrt(), "{exact} {drawn}");
}

#[test]
fn large_samples_are_drawn_and_never_give_p_0() {
    let x: Vec<f64> = (0..150).map(f64::from).collect();
    let y: Vec<f64> = x.iter().map(|v| v + 1000.0).collect();
    close(rank_sum_p(&x, &y, 5), 1.0 / 20_000.0);
}
