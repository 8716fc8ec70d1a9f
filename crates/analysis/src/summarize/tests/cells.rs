use super::*;
use unspin_model::{NeighbourResult, TruthSummary};

#[test]
fn lower_is_better_intervals_keep_their_order() {
    let summary = summary_of(&runs(cell("stock"), Better::Lower, &around(4.0)));
    let median = summary.cells[0].median.unwrap();
    assert!((median.value - 4.0).abs() < 0.02, "{median:?}");
    assert!(median.lo < median.value && median.value < median.hi && median.hi < 4.1);
}

#[test]
fn unfinished_runs_leave_the_interval_open_and_half_of_them_the_median() {
    let values = [4.0, 4.1, 4.2, 4.3, 4.4, 4.5, 0.0, 0.0, 0.0, 0.0];
    let summary = summary_of(&runs(cell("stock"), Better::Lower, &values));
    let of_cell = &summary.cells[0];
    assert_eq!((of_cell.n, of_cell.unfinished, of_cell.failed), (10, 4, 0));
    let median = of_cell.median.unwrap();
    assert!(median.value > 4.3 && median.value < 4.6 && median.hi == f64::INFINITY, "{median:?}");
    assert_eq!(of_cell.values[5..7], [(5, Some(4.5)), (6, None)]);

    for better in [Better::Lower, Better::Higher] {
        let summary = summary_of(&runs(cell("stock"), better, &[4.0, 4.1, 0.0, 0.0]));
        assert_eq!(summary.cells[0].median, None);
    }
}

#[test]
fn failed_runs_are_counted_and_are_no_observations() {
    let mut records = runs(cell("stock"), Better::Higher, &[10.0, 20.0, 30.0]);
    records[2] = failed(records[2].clone(), FailureKind::GuestPanic);
    let lost = run(cell("hold:1"), Better::Higher, 0, None);
    records.push(failed(lost, FailureKind::BootTimeout));
    let summary = summary_of(&records);
    let found: Vec<_> = summary.cells.iter().map(|c| (c.n, c.failed, c.median.is_some())).collect();
    assert_eq!(found, [(0, 1, false), (2, 1, true)]);
    assert_eq!((summary.planned, summary.done), (4, 2));
    assert!(summary.comparisons.is_empty());
}

#[test]
fn the_last_attempt_counts() {
    let mut records = runs(cell("stock"), Better::Higher, &[10.0]);
    let first = failed(records[0].clone(), FailureKind::Int3Oops);
    records[0].attempt = 2;
    records.push(first);
    let summary = summary_of(&records);
    assert_eq!(summary.cells[0].values, [(0, Some(10.0))]);
    assert_eq!((summary.retries, summary.failures[&FailureKind::Int3Oops]), (1, 1));
}

#[test]
fn figures_beside_the_metric() {
    let mut records = runs(cell("stock"), Better::Higher, &[10.0, 20.0, 30.0]);
    for (record, off_s) in records.iter_mut().zip([1.0, 2.0, 6.0]) {
        record.truth = Some(TruthSummary { on_s: 2.0, off_s, ..Default::default() });
        record.co_metrics.insert("latency_us".into(), 5.0 * off_s);
        record.kvm.insert("halt_exits".into(), 8);
        let (vm, workload, metric) = ("n0".into(), "cpu".into(), metric(Better::Higher));
        record.neighbours.push(NeighbourResult {
            vm,
            workload,
            metric,
            value: Some(off_s),
            on_s: Some(2.0),
        });
    }
    records[0].kvm.insert("exit:pause".into(), 2);
    let found = &summary_of(&records).cells[0];
    assert_eq!(found.off_share, Some(0.5));
    assert_eq!(found.co_metrics["latency_us"], 10.0);
    assert_eq!((found.kvm_per_s["halt_exits"], found.kvm_per_s["exit:pause"]), (4.0, 0.0));
    assert_eq!(found.neighbours["n0"], 2.0);
    assert_eq!(found.fairness, Some(1.0));
}

#[test]
fn the_summary_survives_json() {
    let mut records = runs(cell("stock"), Better::Lower, &[4.0, 4.1, 4.2, 0.0, 0.0]);
    records.extend(runs(cell("hold:2"), Better::Lower, &[1.0, 1.1, 1.2, 1.3, 1.4]));
    let summary = summary_of(&records);
    assert_eq!(of_kind(&summary, ComparisonKind::Scheduler)[0].ratio.unwrap().hi, f64::INFINITY);
    let text = serde_json::to_string(&summary).unwrap();
    let back: Summary = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
}

#[test]
fn a_single_run_has_no_interval() {
    let mut records = runs(cell("stock"), Better::Lower, &[10.0]);
    records.extend(runs(cell("bpfland"), Better::Lower, &[5.0]));
    let summary = summary_of(&records);
    let json = serde_json::to_value(&summary).unwrap();
    for (estimate, value) in
        [(&json["cells"][0]["median"], 5.0), (&json["comparisons"][0]["ratio"], 2.0)]
    {
        assert_eq!(*estimate, serde_json::json!({"value": value, "lo": null, "hi": null}));
    }
}
