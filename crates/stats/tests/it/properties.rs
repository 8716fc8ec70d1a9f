//! Properties that hold for all samples, and the method's error rates on
//! simulated noise.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use unspin_stats::{
    Bootstrap, Rule, Run, Verdict, blocked_rank_sum_p, compare, false_positives, holm, jain,
    median_speed, rank_sum_p, ranks, smallest_p, spearman,
};

/// Speeds of which some are 0 (the run did not finish) and some tie.
fn speeds(n: std::ops::Range<usize>) -> impl Strategy<Value = Vec<f64>> {
    let speed = prop_oneof![1 => Just(0.0), 2 => (1u32..8).prop_map(f64::from), 6 => 0.5..50.0f64];
    prop::collection::vec(speed, n)
}

fn runs(speeds: &[f64]) -> Vec<Run> {
    speeds.iter().zip(0..).map(|(&speed, block)| Run { block, speed }).collect()
}

fn bootstrap() -> Bootstrap {
    Bootstrap { resamples: 199, ..Bootstrap::seeded(4) }
}

fn near(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_interval_holds_its_estimate(a in speeds(1..12), b in speeds(1..12)) {
        let median = bootstrap().median(&a).unwrap();
        prop_assert!(median.lo <= median.value && median.value <= median.hi);
        prop_assert_eq!(Some(median.value), median_speed(&a));
        for ratio in [bootstrap().ratio(&a, &b), bootstrap().blocked_ratio(&runs(&a), &runs(&b))] {
            prop_assert_eq!(ratio.is_none(), median_speed(&b) == Some(0.0));
            prop_assert!(ratio.is_none_or(|r| r.lo <= r.value && r.value <= r.hi));
        }
    }

    #[test]
    fn a_change_of_units_scales_the_median_and_leaves_the_ratio(
        a in speeds(1..12), b in speeds(1..12), k in 0.001..1000.0f64,
    ) {
        let scaled = |v: &[f64]| v.iter().map(|x| k * x).collect::<Vec<_>>();
        let (before, after) = (bootstrap().median(&a), bootstrap().median(&scaled(&a)));
        let (before, after) = (before.unwrap(), after.unwrap());
        prop_assert!(near(k * before.lo, after.lo) && near(k * before.hi, after.hi));
        let before = bootstrap().blocked_ratio(&runs(&a), &runs(&b));
        let after = bootstrap().blocked_ratio(&runs(&scaled(&a)), &runs(&scaled(&b)));
        prop_assert_eq!(before.is_some(), after.is_some());
        if let Some((before, after)) = before.zip(after) {
            prop_assert!(near(before.lo, after.lo) && near(before.hi, after.hi));
        }
        prop_assert!(near(rank_sum_p(&a, &b, 1), rank_sum_p(&scaled(&a), &scaled(&b), 1)));
    }

    #[test]
    fn the_order_of_runs_does_not_matter(a in speeds(1..12), b in speeds(1..12)) {
        let reversed = |v: &[Run]| v.iter().rev().copied().collect::<Vec<_>>();
        let (a, b) = (runs(&a), runs(&b));
        let before = compare(&a, &b, 4).unwrap();
        let after = compare(&reversed(&a), &reversed(&b), 4).unwrap();
        prop_assert_eq!(before.ratio, after.ratio);
        prop_assert!(near(before.p, after.p));
    }

    #[test]
    fn p_is_a_probability_that_swapping_does_not_change(a in speeds(1..12), b in speeds(1..12)) {
        let p = rank_sum_p(&a, &b, 1);
        prop_assert!(p <= 1.0 && p >= smallest_p(a.len(), b.len()) * 0.499);
        prop_assert!(near(p, rank_sum_p(&b, &a, 1)));
        let p = blocked_rank_sum_p(&runs(&a), &runs(&b), 1);
        prop_assert!(p > 0.0 && p <= 1.0);
        prop_assert!(near(p, blocked_rank_sum_p(&runs(&b), &runs(&a), 1)));
    }

    #[test]
    fn identical_samples_have_p_1_and_ratio_1(a in speeds(1..12)) {
        prop_assert!(near(rank_sum_p(&a, &a, 1), 1.0));
        let found = compare(&runs(&a), &runs(&a), 1).unwrap();
        prop_assert!(found.ratio.is_none_or(|r| (r.lo, r.value, r.hi) == (1.0, 1.0, 1.0)));
        prop_assert_eq!(Rule::default().verdict(&found, found.p), Verdict::NoDifferenceShown);
    }

    #[test]
    fn holm_never_lowers_a_p_and_keeps_order(p in prop::collection::vec(0.0..=1.0f64, 0..30)) {
        let adjusted = holm(&p);
        for i in 0..p.len() {
            prop_assert!(adjusted[i] >= p[i] && adjusted[i] <= 1.0);
            for j in 0..p.len() {
                prop_assert!(p[i] > p[j] || adjusted[i] <= adjusted[j]);
            }
        }
    }

    #[test]
    fn jain_is_between_1_over_n_and_1(shares in speeds(1..20)) {
        if let Some(index) = jain(&shares) {
            let n = shares.len() as f64;
            prop_assert!(index >= 1.0 / n - 1e-12 && index <= 1.0 + 1e-12);
        } else {
            prop_assert!(shares.iter().all(|s| *s == 0.0));
        }
    }

    #[test]
    fn ranks_add_up(a in speeds(0..30)) {
        let n = a.len() as f64;
        prop_assert!(near(ranks(&a).iter().sum(), n * (n + 1.0) / 2.0));
    }

    #[test]
    fn spearman_is_bounded_and_1_with_itself(a in speeds(3..30)) {
        let itself: Vec<_> = a.iter().map(|&x| (x, x)).collect();
        prop_assert!(spearman(&itself).is_none_or(|rho| near(rho, 1.0)));
        let rotated: Vec<_> = a.iter().copied().zip(a.iter().copied().cycle().skip(1)).collect();
        prop_assert!(spearman(&rotated).is_none_or(|rho| rho.abs() <= 1.0 + 1e-12));
    }
}

/// Returns exp(sigma * z), with z by the method of Box and Muller.
fn lognormal(rng: &mut Pcg64, sigma: f64) -> f64 {
    let (u, v): (f64, f64) = (rng.random(), rng.random());
    (sigma * (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()).exp()
}

/// Returns ten blocks of two cells, which share the host's state in each block.
fn two_cells(rng: &mut Pcg64, shift: f64, noise: f64, of_blocks: f64) -> [Vec<Run>; 2] {
    let host: Vec<f64> = (0..10).map(|_| lognormal(rng, of_blocks)).collect();
    [shift, 1.0].map(|shift| {
        let speeds: Vec<_> = host.iter().map(|h| h * shift * lognormal(rng, noise)).collect();
        runs(&speeds)
    })
}

/// Returns the shares of 300 experiments called better and worse, each as one of `comparisons` that
/// are all corrected for.
fn shares_called(shift: f64, noise: f64, of_blocks: f64, comparisons: f64) -> (f64, f64) {
    let (rule, mut rng) = (Rule::default(), Pcg64::seed_from_u64(11));
    let (mut better, mut worse) = (0.0, 0.0);
    for seed in 0..300 {
        let [subject, baseline] = two_cells(&mut rng, shift, noise, of_blocks);
        let p = comparisons * rank_sum_p(&speeds_of(&subject), &speeds_of(&baseline), seed);
        // p alone rules most out; only the others need the costly interval.
        let verdict =
            (p < rule.alpha).then(|| rule.verdict(&compare(&subject, &baseline, seed).unwrap(), p));
        better += f64::from(u8::from(verdict == Some(Verdict::Better))) / 300.0;
        worse += f64::from(u8::from(verdict == Some(Verdict::Worse))) / 300.0;
    }
    (better, worse)
}

fn speeds_of(runs: &[Run]) -> Vec<f64> {
    runs.iter().map(|run| run.speed).collect()
}

#[test]
fn halves_of_one_cell_are_rarely_called_different() {
    let mut rng = Pcg64::seed_from_u64(3);
    let (mut different, mut splits) = (0, 0);
    for seed in 0..20 {
        let speeds: Vec<f64> = (0..40).map(|_| lognormal(&mut rng, 0.1)).collect();
        let found = false_positives(&speeds, 40, &Rule::default(), seed).unwrap();
        (different, splits) = (different + found.different, splits + found.splits);
    }
    // At most 5 % are expected; the bound leaves room for the draw.
    assert!(different as f64 <= 0.06 * splits as f64, "{different} of {splits}");
}

#[test]
fn equal_cells_are_rarely_called_different_whatever_the_blocks_share() {
    for of_blocks in [0.0, 0.2] {
        let (better, worse) = shares_called(1.0, 0.1, of_blocks, 1.0);
        assert!(better + worse <= 0.07, "{of_blocks}: {better} + {worse}");
    }
}

#[test]
fn a_clear_shift_is_found_even_among_fifty_comparisons() {
    let (better, worse) = shares_called(1.5, 0.05, 0.0, 50.0);
    assert!(better >= 0.99 && worse == 0.0, "{better} {worse}");
}
