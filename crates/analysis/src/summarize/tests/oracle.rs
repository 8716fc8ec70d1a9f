use super::*;
use serde_json::json;
use unspin_model::TIMER_INTERRUPTS;
use unspin_model::summary::Verdict;

fn experiment(stock: &[f64], held: &[(&str, &[f64])]) -> Summary {
    let mut records = runs(cell("stock"), Better::Higher, stock);
    for (scheduler, values) in held {
        records.extend(runs(cell(scheduler), Better::Higher, values));
    }
    summary_of(&records)
}

#[test]
fn finds_the_best_choice() {
    let held: [(&str, &[f64]); 2] = [("hold:1", &around(12.0)), ("hold:2", &around(25.0))];
    let summary = experiment(&around(10.0), &held);
    let found = of_kind(&summary, ComparisonKind::Oracle);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].choice.as_deref(), Some("hold:2"));
    assert_eq!(
        (found[0].subject.scheduler.as_str(), found[0].verdict),
        ("oracle", Verdict::Better)
    );
    assert!((found[0].ratio.unwrap().value - 2.5).abs() < 1e-9);
}

#[test]
fn hindsight_does_not_flatter_it() {
    // hold:2 has the better median, 1.5 times that of stock, by luck in two of three blocks. Chosen
    // by the other blocks, it is taken only in the block in which it loses.
    let summary = experiment(&[100.0; 3], &[("hold:2", &[150.0, 150.0, 50.0])]);
    let found = of_kind(&summary, ComparisonKind::Oracle)[0];
    assert_eq!(found.ratio.unwrap().value, 1.0);
    assert_eq!(found.choice.as_deref(), Some("stock"));
}

#[test]
fn is_stock_itself_where_holding_only_hurts() {
    let summary = experiment(&around(10.0), &[("hold:1", &around(6.0))]);
    let found = of_kind(&summary, ComparisonKind::Oracle)[0];
    let ratio = found.ratio.unwrap();
    assert_eq!((ratio.lo, ratio.value, ratio.hi, found.p), (1.0, 1.0, 1.0, 1.0));
    assert_eq!(found.verdict, Verdict::NoDifferenceShown);
}

#[test]
fn needs_a_held_choice_and_other_blocks() {
    let summary = experiment(&around(10.0), &[("bpfland", &around(20.0))]);
    assert!(of_kind(&summary, ComparisonKind::Oracle).is_empty());
    let summary = experiment(&[10.0], &[("hold:2", &[20.0])]);
    assert!(of_kind(&summary, ComparisonKind::Oracle).is_empty());
}

#[test]
fn has_no_value_in_a_block_where_its_choice_failed() {
    let mut records = runs(cell("stock"), Better::Higher, &around(10.0));
    records.extend(runs(cell("hold:2"), Better::Higher, &around(20.0)));
    let lost = records.iter_mut().find(|r| r.cell.scheduler == "hold:2" && r.block == 4).unwrap();
    *lost = failed(lost.clone(), FailureKind::GuestHang);
    let summary = summary_of(&records);
    let found = of_kind(&summary, ComparisonKind::Oracle)[0];
    // 9 and 10 runs that do not overlap.
    assert!((found.p - 2.0 / 92_378.0).abs() < 1e-12, "{}", found.p);
    assert!(found.ratio.unwrap().lo > 1.9);
}

#[test]
fn beats_a_stock_that_does_not_finish() {
    let summary = experiment(&[0.0; 10], &[("hold:2", &around(20.0))]);
    let found = of_kind(&summary, ComparisonKind::Oracle)[0];
    assert_eq!((found.ratio, found.verdict), (None, Verdict::Better));
    assert_eq!(found.choice.as_deref(), Some("hold:2"));
}

#[test]
fn a_scheduler_is_compared_with_the_oracle_or_another_scheduler() {
    let held: [(&str, &[f64]); 2] = [("hold:2", &around(25.0)), ("unspin", &around(20.0))];
    let summary = experiment(&around(10.0), &held);
    let spec = |from: &str, against: Option<&str>| -> ClaimSpec {
        let spec = json!({
            "id": format!("{from} {against:?}"), "what": "x", "from": from,
            "scheduler": "unspin", "against": against,
        });
        serde_json::from_value(spec).unwrap()
    };
    let specs = [
        spec("speed-geomean", Some("oracle")),
        spec("speed-least", None),
        spec("speed-geomean", Some("scx_lavd")),
    ];
    let found = claims_of(&specs, &summary);
    let values: Vec<f64> = found.iter().filter_map(|claim| claim.value).collect();
    assert_eq!((found.len(), values), (2, vec![0.8, 2.0]));
}

/// As in [`hindsight_does_not_flatter_it`]: with hindsight the figure would be 100/150.
#[test]
fn hindsight_does_not_flatter_what_a_scheduler_is_compared_with() {
    let held: [(&str, &[f64]); 2] = [("hold:2", &[150.0, 150.0, 50.0]), ("unspin", &[100.0; 3])];
    let summary = experiment(&[100.0; 3], &held);
    for from in ["speed-ratio", "speed-geomean", "speed-least"] {
        let spec = json!({
            "id": "x", "what": "x", "from": from, "scheduler": "unspin", "against": "oracle",
        });
        let specs = [serde_json::from_value(spec).unwrap()];
        let found = claims_of(&specs, &summary);
        assert!((found[0].value.unwrap() - 1.0).abs() < 1e-9, "{from}: {found:?}");
    }
}

/// In the second half of the blocks, the host was twice as fast.
#[test]
fn blocks_cancel_out_of_every_ratio_and_cut() {
    let host: Vec<f64> = (0..10).map(|block| if block < 5 { 10.0 } else { 20.0 }).collect();
    let half: Vec<f64> = host.iter().map(|speed| speed / 2.0).collect();
    let summary = experiment(&host, &[("unspin", &half)]);
    for (from, value) in
        [("speed-ratio", 0.5), ("speed-geomean", 0.5), ("speed-least", 0.5), ("figure-cut", 50.0)]
    {
        let spec = json!({ "id": "x", "what": "x", "from": from, "scheduler": "unspin" });
        let specs = [serde_json::from_value(spec).unwrap()];
        let claim = claims_of(&specs, &summary).remove(0);
        for end in [claim.value, claim.lo, claim.hi] {
            assert!((end.unwrap() - value).abs() < 1e-9, "{claim:?}");
        }
    }
}

#[test]
fn few_blocks_give_no_interval() {
    let ends = |n: usize| {
        let values = around(10.0)[..n].to_vec();
        let summary = experiment(&values, &[("unspin", &around(20.0)[..n])]);
        let spec = json!({ "id": "x", "what": "x", "from": "speed-least", "scheduler": "unspin" });
        let specs = [serde_json::from_value(spec).unwrap()];
        let claim = claims_of(&specs, &summary).remove(0);
        assert!(claim.value.is_some());
        (claim.lo.is_some(), claim.hi.is_some())
    };
    assert_eq!((ends(4), ends(5)), ((false, false), (true, true)));
}

#[test]
fn a_workload_can_be_left_out_of_a_figure() {
    let summary = experiment(&around(10.0), &[("unspin", &around(20.0))]);
    let values = |without: &str| -> Vec<f64> {
        let spec = json!({
            "id": "x", "what": "x", "from": "speed-least", "scheduler": "unspin",
            "without": without,
        });
        let specs = [serde_json::from_value(spec).unwrap()];
        let found = claims_of(&specs, &summary);
        found.iter().filter_map(|claim| claim.value).collect()
    };
    assert_eq!(values("another"), [2.0]);
    assert!(values(&cell("unspin").workload).is_empty());
}

#[test]
fn the_least_by_chance_is_of_what_is_held_against() {
    let least = |from: &str, baseline: &[f64]| {
        let summary = experiment(baseline, &[("unspin", &around(20.0))]);
        let spec = json!({ "id": "x", "what": "x", "from": from, "scheduler": "unspin" });
        let specs = [serde_json::from_value(spec).unwrap()];
        claims_of(&specs, &summary).remove(0)
    };
    let steady = least("speed-least-by-chance", &[10.0; 10]);
    assert_eq!((steady.value, steady.lo, steady.n), (Some(1.0), Some(1.0), 10));
    let scattered = least("speed-least-by-chance", &around(10.0));
    assert!(scattered.value.unwrap() > 0.9 && scattered.lo.unwrap() < 1.0, "{scattered:?}");
    assert_eq!(least("speed-least", &around(10.0)).value, Some(2.0));
}

#[test]
fn a_cut_is_told_of_a_figure_beside_the_metric_and_of_the_metric_itself() {
    let mut records = runs(cell("stock"), Better::Lower, &[10.0; 10]);
    records.extend(runs(cell("unspin"), Better::Lower, &[4.0; 10]));
    for record in &mut records {
        let spinning = if record.cell.scheduler == "unspin" { 0.1 } else { 0.5 };
        record.co_metrics.insert("spinning".into(), spinning);
    }
    let spec = |figure: Option<&str>, workload: Option<&str>| -> ClaimSpec {
        let spec = json!({
            "id": format!("{figure:?} {workload:?}"), "what": "x", "from": "figure-cut",
            "scheduler": "unspin", "figure": figure, "workload": workload,
        });
        serde_json::from_value(spec).unwrap()
    };
    let specs = [spec(Some("spinning"), None), spec(None, None), spec(None, Some("another"))];
    let found = claims_of(&specs, &summary_of(&records));
    let values: Vec<f64> = found.iter().filter_map(|claim| claim.value).collect();
    assert_eq!((found.len(), found[0].unit.as_str()), (2, "%"));
    assert!((values[0] - 80.0).abs() < 1e-9 && (values[1] - 60.0).abs() < 1e-9, "{values:?}");
}

#[test]
fn the_median_of_a_co_metric_has_the_unit_of_its_name() {
    let mut records = runs(cell("stock"), Better::Lower, &[10.0; 10]);
    for record in &mut records {
        record.co_metrics.insert("getpid_ns".into(), 100.0 + f64::from(record.block % 2));
    }
    let spec = json!({
        "id": "x.{workload}", "what": "x", "from": "figure-median", "figure": "getpid_ns",
    });
    let specs: [ClaimSpec; 1] = [serde_json::from_value(spec).unwrap()];
    specs[0].check().unwrap();
    let found = claims_of(&specs, &summary_of(&records));
    let [claim] = &found[..] else { panic!("{found:?}") };
    assert_eq!((claim.value, claim.unit.as_str(), claim.n), (Some(100.5), "ns", 10));
    assert_eq!(claim.lo, Some(100.0));
}

#[test]
fn a_share_is_of_all_runs_that_a_spec_is_about() {
    let mut records = runs(cell("stock"), Better::Lower, &[10.0; 10]);
    let elsewhere = Cell { topology: "elsewhere".into(), ..cell("stock") };
    records.extend(runs(elsewhere, Better::Lower, &[10.0; 10]).into_iter().map(|mut record| {
        record.run += 100;
        record
    }));
    for record in &mut records {
        // A run without the figure does not count as right.
        if record.block != 3 {
            let right = record.cell.topology == "elsewhere" || record.block % 2 == 0;
            record.co_metrics.insert("right".into(), f64::from(u8::from(right)));
        }
    }
    let spec = |topology: Option<&str>| -> ClaimSpec {
        let spec = json!({
            "id": format!("{topology:?}"), "what": "x", "from": "figure-share", "figure": "right",
            "topology": topology,
        });
        serde_json::from_value(spec).unwrap()
    };
    let specs = [spec(None), spec(Some("elsewhere"))];
    specs.iter().for_each(|spec| spec.check().unwrap());
    let found = claims_of(&specs, &summary_of(&records));
    let shares: Vec<_> =
        found.iter().map(|claim| (claim.value.unwrap().round(), claim.n)).collect();
    assert_eq!(shares, [(70.0, 20), (90.0, 10)], "{found:?}");
}

#[test]
fn timers_that_an_agent_adds_have_an_interval_and_a_total_has_none() {
    let mut records = runs(cell("stock"), Better::Lower, &[3.0; 10]);
    records.extend(runs(cell("watch"), Better::Lower, &[3.0; 10]));
    for record in &mut records {
        // The common part of a block cancels out; the agent's own part scatters.
        let own = 4.0 + f64::from(record.block % 3);
        let more = if record.cell.scheduler == "watch" { own } else { 0.0 };
        let timers = 50.0 + more + 10.0 * f64::from(record.block);
        record.co_metrics.insert(TIMER_INTERRUPTS.into(), timers);
    }
    let spec = |from: &str| -> ClaimSpec {
        let spec = json!({ "id": from, "what": "x", "from": from, "scheduler": "watch" });
        serde_json::from_value(spec).unwrap()
    };
    let specs = [spec("agent-timers"), spec("elapsed-s")];
    let found = claims_of(&specs, &summary_of(&records));
    let [timers, elapsed] = &found[..] else { panic!("{found:?}") };
    assert_eq!(timers.value, Some(5.5));
    assert_eq!((timers.lo, timers.hi), (Some(4.0), Some(6.0)));
    assert_eq!((elapsed.value, elapsed.lo, elapsed.hi), (Some(1.0), None, None));
}

#[test]
fn a_claim_has_the_label_of_its_own_topology() {
    let mut records = runs(cell("stock"), Better::Higher, &[10.0; 5]);
    let elsewhere = Cell { topology: "elsewhere".into(), ..cell("stock") };
    records.extend(runs(elsewhere, Better::Higher, &[10.0; 5]).into_iter().map(|mut record| {
        record.run += 100;
        record.label.prices = Some("tdx".into());
        record
    }));
    for record in &mut records {
        record.co_metrics.insert("getpid_ns".into(), 1.0);
    }
    let spec = json!({
        "id": "{topology}", "what": "x", "from": "figure-median", "figure": "getpid_ns",
    });
    let all = json!({ "id": "all", "what": "x", "from": "elapsed-s" });
    let specs = [spec, all].map(|spec| serde_json::from_value::<ClaimSpec>(spec).unwrap());
    let found = claims_of(&specs, &summary_of(&records));
    let priced = |id: &str| found.iter().find(|claim| claim.id == id).unwrap().label.clone();
    let here = priced(&records[0].cell.topology);
    assert!(!here.contains("tdx"), "{here}");
    assert_eq!(priced("elsewhere"), format!("{here}, prices tdx"));
    assert_eq!(priced("all"), format!("{here}; {here}, prices tdx"));
}
