use rand::SeedableRng;
use rand_pcg::Pcg64;

use super::*;

const V: [f64; 10] = [9.1, 10.2, 9.8, 10.5, 11.0, 9.6, 10.1, 9.9, 10.4, 10.0];
const W: [f64; 10] = [14.8, 15.6, 15.1, 14.2, 15.9, 15.0, 16.1, 14.9, 15.3, 15.2];

fn runs(speeds: &[f64]) -> Vec<Run> {
    speeds.iter().zip(0..).map(|(&speed, block)| Run { block, speed }).collect()
}

fn close(found: Interval, value: f64, lo: f64, hi: f64) {
    let near = |a: f64, b: f64| (a - b).abs() < 0.01;
    assert!(near(found.value, value) && near(found.lo, lo) && near(found.hi, hi), "{found:?}");
}

#[test]
fn matches_scipy() {
    // scipy.stats.bootstrap(method='percentile', n_resamples=200000), SciPy 1.17.1.
    let bootstrap = Bootstrap::seeded(1);
    close(bootstrap.median(&V).unwrap(), 10.05, 9.75, 10.4);
    close(bootstrap.ratio(&W, &V).unwrap(), 1.5075, 1.4493, 1.575);
    close(bootstrap.blocked_ratio(&runs(&W), &runs(&V)).unwrap(), 1.5075, 1.4559, 1.5473);
    close(bootstrap.blocked_difference(&runs(&W), &runs(&V)).unwrap(), 5.1, 4.7, 5.5);
}

#[test]
fn a_difference_takes_zeros_for_figures() {
    let bootstrap = Bootstrap::seeded(1);
    let difference = |a: &[f64], b: &[f64]| bootstrap.blocked_difference(&runs(a), &runs(b));
    close(difference(&[0.0, 0.0, 3.0], &[1.0, 1.0, 1.0]).unwrap(), -1.0, -1.0, 2.0);
    assert_eq!(difference(&V, &[]), None);
}

#[test]
fn blocks_cancel_what_they_have_in_common() {
    // In the second half of the blocks, the host was twice as fast.
    let host: Vec<f64> = (0..10).map(|i| if i < 5 { 1.0 } else { 2.0 }).collect();
    let subject: Vec<f64> = host.iter().map(|h| 1.5 * h).collect();
    let bootstrap = Bootstrap::seeded(1);
    let paired = bootstrap.blocked_ratio(&runs(&subject), &runs(&host)).unwrap();
    close(paired, 1.5, 1.5, 1.5);
    let free = bootstrap.ratio(&subject, &host).unwrap();
    assert!(free.lo < 1.0 && free.hi > 2.0, "{free:?}");
}

#[test]
fn missing_blocks_and_disjoint_blocks_still_give_a_ratio() {
    let (subject, baseline) = (runs(&W), runs(&V));
    let found = Bootstrap::seeded(1).blocked_ratio(&subject[..8], &baseline[3..]).unwrap();
    assert!(found.lo > 1.4 && found.hi < 1.6, "{found:?}");
    let found = Bootstrap::seeded(1).blocked_ratio(&subject[..1], &baseline[9..]).unwrap();
    close(found, 1.48, 1.48, 1.48);
}

#[test]
fn unfinished_runs() {
    let bootstrap = Bootstrap::seeded(1);
    let some = [0.0, 0.0, 0.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    assert_eq!(bootstrap.ratio(&V, &[0.0, 0.0, 3.0, 3.0]), None);
    assert_eq!(bootstrap.median(&[0.0; 4]).unwrap(), Interval { value: 0.0, lo: 0.0, hi: 0.0 });
    let found = bootstrap.median(&some).unwrap();
    assert!(found.value == 4.5 && found.lo == 0.0, "{found:?}");
    let found = bootstrap.ratio(&V, &some).unwrap();
    assert_eq!(found.hi, f64::INFINITY);
    assert_eq!(bootstrap.ratio(&[], &V), None);
}

/// Returns how often the intervals of 400 samples of `n` lognormal values contain the truth.
fn coverage(n: usize, interval: impl Fn(&[f64], &[f64], u64) -> Interval, truth: f64) -> f64 {
    let mut rng = Pcg64::seed_from_u64(7);
    let mut sample = || -> Vec<f64> { (0..n).map(|_| lognormal(&mut rng, 0.2)).collect() };
    let held = (0..400)
        .filter(|&seed| {
            let found = interval(&sample(), &sample(), seed);
            found.lo <= truth && truth <= found.hi
        })
        .count();
    held as f64 / 400.0
}

/// Returns exp(sigma * z), with z by the method of Box and Muller.
fn lognormal(rng: &mut Pcg64, sigma: f64) -> f64 {
    let (u, v): (f64, f64) = (rng.random(), rng.random());
    (sigma * (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()).exp()
}

#[test]
fn intervals_of_ten_runs_cover_the_truth_about_as_often_as_they_say() {
    let few = |seed| Bootstrap { resamples: 499, ..Bootstrap::seeded(seed) };
    let median = coverage(10, |a, _, seed| few(seed).median(a).unwrap(), 1.0);
    assert!((0.89..=0.98).contains(&median), "median: {median}");
    let ratio = coverage(10, |a, b, seed| few(seed).ratio(a, b).unwrap(), 1.0);
    assert!((0.91..=0.99).contains(&ratio), "ratio: {ratio}");
    let blocked = |a: &[f64], b: &[f64], seed| few(seed).blocked_ratio(&runs(a), &runs(b)).unwrap();
    let blocked = coverage(10, blocked, 1.0);
    assert!((0.91..=0.99).contains(&blocked), "blocked ratio: {blocked}");
}

#[test]
fn figures_of_many_ratios_have_an_interval() {
    let (twice, half) = (runs(&W.map(|w| w / 1.5 * 2.0)), runs(&W.map(|w| w / 1.5 / 2.0)));
    let baseline = runs(&V);
    let pairs = [(&twice[..], &baseline[..]), (&half[..], &baseline[..])];
    let least = |ratios: &[f64]| ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let product = |ratios: &[f64]| ratios.iter().product::<f64>();
    let found = Bootstrap::seeded(3).of_ratios(&pairs, least).unwrap();
    assert!((found.value - 0.5025).abs() < 1e-4 && found.lo < 0.5 && found.hi > 0.5, "{found:?}");
    let found = Bootstrap::seeded(3).of_ratios(&pairs, product).unwrap();
    assert!((found.value - 1.01).abs() < 0.001 && found.lo < 1.0 && found.hi > 1.0, "{found:?}");
    assert!(Bootstrap::seeded(3).of_ratios(&[], product).is_none());
    assert!(Bootstrap::seeded(3).of_ratios(&[(&[], &baseline)], product).is_none());
    // A baseline that never finished makes its own ratio unbounded, and does not change the
    // smallest one.
    let never = runs(&[0.0; 10]);
    let pairs = [(&half[..], &baseline[..]), (&half[..], &never[..])];
    let found = Bootstrap::seeded(3).of_ratios(&pairs, least).unwrap();
    assert!((found.value - 0.5025).abs() < 1e-4, "{found:?}");
    let found = Bootstrap::seeded(3).of_ratios(&pairs, product).unwrap();
    assert_eq!(found.value, f64::INFINITY);
}

#[test]
fn a_mean_of_0_and_infinity_is_not_a_number() {
    let from_logs = |ratios: &[f64]| ratios.iter().map(|ratio| ratio.ln()).sum::<f64>().exp();
    let (some, never) = (runs(&V), runs(&[0.0; 10]));
    let (lost, gained) = ((&never[..], &some[..]), (&some[..], &never[..]));
    let of = |pairs: &[(&[Run], &[Run])]| Bootstrap::seeded(3).of_ratios(pairs, from_logs);
    assert_eq!(of(&[lost, gained]), None);
    assert_eq!(of(&[lost]).map(|found| found.value), Some(0.0));
    assert_eq!(of(&[gained]).map(|found| found.value), Some(f64::INFINITY));
    // A third of the resamples have no such mean. They do not count.
    let rarely = runs(&[0.0, 0.0, 0.0, 0.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]);
    let others = runs(&W);
    let found = of(&[(&rarely[..], &some[..]), (&others[..], &rarely[..])]).unwrap();
    assert!(found.lo < found.value && found.value < found.hi, "{found:?}");
}

#[test]
fn a_ratio_without_an_interval_is_there_wherever_both_have_runs() {
    let (some, never) = (runs(&V), runs(&[0.0; 4]));
    type Ratio = fn(&[Run], &[Run]) -> Option<f64>;
    let both: [Ratio; 2] = [ratio_of_speeds, ratio_of_figures];
    for of in both {
        assert_eq!(of(&some, &never), Some(f64::INFINITY));
        assert_eq!(of(&never, &some), Some(0.0));
        assert_eq!(of(&never, &never), Some(1.0));
        assert_eq!((of(&[], &some), of(&some, &[])), (None, None));
    }
    assert_eq!(ratio_of_figures(&runs(&[-1.0]), &never), None);
}

#[test]
fn a_figure_of_one_ratio_is_that_ratio_with_its_interval() {
    let (subject, baseline) = (runs(&W), runs(&V));
    let bootstrap = Bootstrap::seeded(4);
    let alone = bootstrap.of_ratios(&[(&subject, &baseline)], |ratios| ratios[0]);
    assert_eq!(alone, bootstrap.blocked_ratio(&subject, &baseline));
}

#[test]
fn cells_of_a_block_are_drawn_together() {
    // In each block, one cell gains what the other one loses.
    let up: Vec<f64> = (1..=10).map(f64::from).collect();
    let down: Vec<f64> = up.iter().map(|v| 1.0 / v).collect();
    let (up, down, one) = (runs(&up), runs(&down), runs(&[1.0; 10]));
    let product = |ratios: &[f64]| ratios.iter().product::<f64>();
    let pairs = [(&up[..], &one[..]), (&down[..], &one[..])];
    let found = Bootstrap::seeded(1).of_ratios(&pairs, product).unwrap();
    assert!(found.lo > 0.9 && found.hi < 1.2, "{found:?}");
}

#[test]
fn the_least_of_many_is_low_by_chance() {
    let least = |ratios: &[f64]| ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let of = |samples: &[Vec<f64>]| {
        let samples: Vec<Vec<Run>> = samples.iter().map(|sample| runs(sample)).collect();
        let samples: Vec<&[Run]> = samples.iter().map(Vec::as_slice).collect();
        Bootstrap::seeded(3).by_chance(&samples, least)
    };
    // Twelve cells whose luck differs from block to block.
    let turned = |by: usize| V.iter().cycle().skip(by).take(V.len()).copied().collect();
    let twelve: Vec<Vec<f64>> = (0..12).map(|cell| turned(cell * 7)).collect();
    let (one, twelve) = (of(&[V.to_vec()]).unwrap(), of(&twelve).unwrap());
    assert!((one.value - 1.0).abs() < 0.005 && one.lo < 0.97 && one.hi > 1.03, "{one:?}");
    assert!(twelve.value < 0.97 && twelve.hi < 1.0, "{twelve:?}");
    assert_eq!(of(&[vec![10.0; 5]]).map(|found| (found.lo, found.hi)), Some((1.0, 1.0)));
    assert!(of(&[]).is_none() && of(&[V.to_vec(), vec![]]).is_none());
}

#[test]
fn shares_vary_as_their_runs_do() {
    let bootstrap = Bootstrap::seeded(5);
    let alike = [vec![[90.0, 100.0]; 6]];
    let found = bootstrap.share(&alike).unwrap();
    assert!((found.value - 0.9).abs() < 1e-9 && found.hi - found.lo < 1e-9, "{found:?}");
    // The sums are the same, but three runs find all and three find four fifths.
    let apart = [[[100.0, 100.0], [80.0, 100.0]].repeat(3)];
    let found = bootstrap.share(&apart).unwrap();
    assert!((found.value - 0.9).abs() < 1e-9 && found.lo < 0.84 && found.hi > 0.96, "{found:?}");
    // Two cells differ from each other, but the runs of each do not.
    let cells = [vec![[100.0, 100.0]; 3], vec![[80.0, 100.0]; 3]];
    let found = bootstrap.share(&cells).unwrap();
    assert!((found.value - 0.9).abs() < 1e-9 && found.hi - found.lo < 1e-9, "{found:?}");
    assert!(bootstrap.share(&[]).is_none() && bootstrap.share(&[vec![[0.0, 0.0]]]).is_none());
}

#[test]
fn a_figure_of_0_is_not_a_run_that_did_not_finish() {
    let storms = [963.0, 0.0, 0.0, 725.0, 115.0, 0.0];
    let bootstrap = Bootstrap::seeded(7);
    assert_eq!(bootstrap.median(&storms).unwrap().value, 0.0, "as speeds");
    assert_eq!(bootstrap.median_of_figures(&storms).unwrap().value, 57.5);
    let (subject, baseline) = (runs(&storms), runs(&[115.0; 6]));
    let ratio = bootstrap.blocked_ratio_of_figures(&subject, &baseline).unwrap();
    assert_eq!(ratio.value, 0.5);
    assert!(bootstrap.blocked_ratio_of_figures(&subject, &runs(&[0.0; 6])).is_none());
}
