use super::*;
use unspin_model::NeighbourResult;
use unspin_model::summary::Verdict;

fn two(better: Better, subject: &[f64], baseline: &[f64]) -> Comparison {
    let mut records = runs(cell("bpfland"), better, subject);
    records.extend(runs(cell("stock"), better, baseline));
    let summary = summary_of(&records);
    assert_eq!(summary.comparisons.len(), 1);
    of_kind(&summary, ComparisonKind::Scheduler)[0].clone()
}

#[test]
fn ratios_are_of_speed_in_both_directions() {
    let rate = two(Better::Higher, &around(20.0), &around(10.0));
    let time = two(Better::Lower, &around(10.0), &around(20.0));
    for found in [rate, time] {
        let ratio = found.ratio.unwrap();
        // Both cells have the same noise in each block, which pairing removes.
        assert!((ratio.value - 2.0).abs() < 1e-9 && ratio.hi - ratio.lo < 1e-9, "{ratio:?}");
        assert_eq!(found.verdict, Verdict::Better);
        assert!((found.p - 2.0 / 184_756.0).abs() < 1e-12);
    }
    let slower = two(Better::Lower, &around(20.0), &around(10.0));
    assert_eq!(slower.verdict, Verdict::Worse);
    assert!((slower.ratio.unwrap().value - 0.5).abs() < 1e-9);
}

#[test]
fn an_unfinished_baseline_has_no_ratio_and_still_loses() {
    let found = two(Better::Lower, &around(20.0), &[0.0; 10]);
    assert_eq!((found.ratio, found.verdict), (None, Verdict::Better));
    let found = two(Better::Lower, &[0.0; 10], &around(20.0));
    assert_eq!((found.ratio.unwrap().hi, found.verdict), (0.0, Verdict::Worse));
}

#[test]
fn small_effects_and_noise_are_not_shown() {
    let same = two(Better::Higher, &around(10.0), &around(10.0));
    assert_eq!((same.verdict, same.p), (Verdict::NoDifferenceShown, 1.0));
    // The shift is clear, but too small to matter.
    let tight = |centre: f64| -> Vec<f64> { around(1.0).map(|f| centre + f / 10.0).into() };
    let small = two(Better::Higher, &tight(10.2), &tight(10.0));
    assert!(small.p_adjusted < 0.001 && small.ratio.unwrap().lo > 1.0);
    assert_eq!(small.verdict, Verdict::NoDifferenceShown);
}

#[test]
fn runs_that_cannot_show_any_difference_are_too_few() {
    let of = |n: usize| two(Better::Higher, &around(20.0)[..n], &around(10.0)[..n]);
    assert_eq!((of(3).p, of(3).verdict), (0.1, Verdict::TooFewRuns));
    assert_eq!(of(4).verdict, Verdict::Better);
    let alike = two(Better::Higher, &around(10.0)[..4], &around(10.0)[..4]);
    assert_eq!(alike.verdict, Verdict::NoDifferenceShown);
}

#[test]
fn missing_blocks_still_compare() {
    let mut records = runs(cell("bpfland"), Better::Higher, &around(20.0));
    records.extend(runs(cell("stock"), Better::Higher, &around(10.0)));
    records.retain(|r| r.cell.scheduler == "stock" || r.block % 3 != 0);
    let summary = summary_of(&records);
    let found = &summary.comparisons[0];
    assert_eq!(found.verdict, Verdict::Better);
    let ratio = found.ratio.unwrap();
    assert!(ratio.lo > 1.9 && ratio.hi < 2.1, "{ratio:?}");
}

#[test]
fn p_is_corrected_for_all_comparisons_of_the_experiment() {
    // 3 and 5 runs: p is 2/56, enough on its own, but not as one of ten.
    let fast = [20.0, 21.0, 22.0];
    let slow = [10.0, 11.0, 12.0, 13.0, 14.0];
    let mut records = runs(cell("s0"), Better::Higher, &fast);
    records.extend(runs(cell("stock"), Better::Higher, &slow));
    assert_eq!(summary_of(&records).comparisons[0].verdict, Verdict::Better);
    for other in 1..10 {
        records.extend(runs(cell(&format!("s{other}")), Better::Higher, &slow));
    }
    let summary = summary_of(&records);
    assert_eq!(summary.comparisons.len(), 10);
    let found = &summary.comparisons[0];
    assert!((found.p_adjusted - 10.0 * 2.0 / 56.0).abs() < 1e-9, "{found:?}");
    assert_eq!(found.verdict, Verdict::TooFewRuns);
}

#[test]
fn the_oracle_of_one_static_choice_is_no_comparison_more() {
    let (fast, slow) = ([20.0, 21.0, 22.0], [10.0, 11.0, 12.0, 13.0, 14.0]);
    let mut records = runs(cell("hold:2"), Better::Higher, &fast);
    records.extend(runs(cell("stock"), Better::Higher, &slow));
    let summary = summary_of(&records);
    assert_eq!(summary.comparisons.len(), 2, "both are reported");
    assert_eq!(crate::family::counted(&summary.comparisons).count(), 1);
    let held = of_kind(&summary, ComparisonKind::Scheduler)[0];
    assert_eq!((held.p_adjusted, held.verdict), (held.p, Verdict::Better));
}

#[test]
fn topologies_and_kernels_have_their_own_baselines() {
    let at = |topology: &str, params: &str, scheduler: &str| Cell {
        topology: topology.into(),
        boot_params: params.into(),
        ..cell(scheduler)
    };
    let mut records = Vec::new();
    for (topology, params, scheduler) in [
        ("1:1", "", "stock"),
        ("2:1", "", "stock"),
        ("2:1", "", "bpfland"),
        ("1:1", "", "bpfland"),
        ("2:1", "nopvspin", "stock"),
    ] {
        records.extend(runs(at(topology, params, scheduler), Better::Higher, &around(10.0)));
    }
    // The runs are numbered by the matrix, but carried out in another order.
    records.iter_mut().zip(0..).for_each(|(record, run)| record.run = run);
    records.reverse();
    let info = ExperimentInfo { baseline_topology: Some("1:1".into()), ..info() };
    let summary = crate::summarize(info, Machine::default(), 50, 1.0, &records);
    let found = |kind| -> Vec<(Cell, Cell)> {
        let pair = |c: &Comparison| (c.subject.clone(), c.baseline.clone());
        of_kind(&summary, kind).into_iter().map(pair).collect()
    };
    assert_eq!(found(ComparisonKind::Topology), [(at("2:1", "", "stock"), at("1:1", "", "stock"))]);
    assert_eq!(
        found(ComparisonKind::Kernel),
        [(at("2:1", "nopvspin", "stock"), at("2:1", "", "stock"))]
    );
    assert_eq!(found(ComparisonKind::Scheduler).len(), 2);
    assert_eq!(summary.comparisons.len(), 4);
}

#[test]
fn the_neighbours_change_stands_beside() {
    let with = |scheduler: &str, time_s: f64| {
        let mut records = runs(cell(scheduler), Better::Higher, &around(10.0));
        for record in &mut records {
            let (vm, workload) = ("n0".into(), "hackbench".into());
            let (metric, value) = (metric(Better::Lower), Some(time_s));
            record.neighbours.push(NeighbourResult { vm, workload, metric, value, on_s: None });
        }
        records
    };
    let records = [with("bpfland", 4.0), with("stock", 2.0)].concat();
    assert_eq!(summary_of(&records).comparisons[0].neighbours["n0"], 0.5);
}
