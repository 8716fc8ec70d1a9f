//! Claims about runs that did not finish, failed, or were never started.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use unspin_model::run::InjectionCheck;
use unspin_model::{AGENT_MEMORY, TruthSummary};

use super::*;

const NEVER: [f64; 10] = [0.0; 10];

fn spec(from: &str, more: Value) -> ClaimSpec {
    let mut spec = json!({ "id": "x", "what": "x", "from": from });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(spec).unwrap()
}

/// A spec's claim, or which one is not measured and why.
fn claim_of(spec: ClaimSpec, summary: &Summary) -> Result<Claim, String> {
    let (mut claims, lacking) = evaluated(&[spec], summary);
    match lacking.first() {
        Some(lacking) => Err(lacking.to_string()),
        None => Ok(claims.remove(0)),
    }
}

/// Returns the comparison of `unspin` with `stock`, in the same topology.
fn against_stock(from: &str, summary: &Summary) -> Result<Claim, String> {
    claim_of(spec(from, json!({ "scheduler": "unspin", "target": ">= 0.97" })), summary)
}

fn two(unspin: &[f64], stock: &[f64]) -> Vec<RunRecord> {
    let unspin = runs(cell("unspin"), Better::Higher, unspin);
    [unspin, runs(cell("stock"), Better::Higher, stock)].concat()
}

const RATIOS: [&str; 4] = ["speed-ratio", "speed-geomean", "speed-least", "scheduler-ratio"];

#[test]
fn a_ratio_says_which_side_did_not_finish() {
    for from in RATIOS {
        for (unspin, stock, value, holds) in [
            (around(10.0), NEVER, None, true),
            (NEVER, NEVER, Some(1.0), true),
            (NEVER, around(10.0), Some(0.0), false),
        ] {
            let claim = against_stock(from, &summary_of(&two(&unspin, &stock))).unwrap();
            let found = (claim.value, claim.holds, claim.unbounded_below);
            assert_eq!(found, (value, Some(holds), false), "{from}: {claim:?}");
        }
    }
}

#[test]
fn what_has_no_result_is_never_a_claim() {
    for from in RATIOS {
        for scheduler in ["unspin", "stock"] {
            let mut records = two(&around(10.0), &around(10.0));
            for record in records.iter_mut().filter(|r| r.cell.scheduler == scheduler) {
                *record = failed(record.clone(), FailureKind::GuestPanic);
            }
            let error = against_stock(from, &summary_of(&records)).unwrap_err();
            let says = error.contains("claim `x` is not measured") && error.contains("rename 2:1");
            assert!(says, "{from}: {error}");
        }
    }
    // No run matches, so nothing was counted.
    let share = json!({ "figure": "right", "topology": "elsewhere", "target": ">= 95" });
    let (claims, lacking) = evaluated(
        &[spec("figure-share", share), spec("elapsed-s", json!({ "id": "s" }))],
        &summary_of(&two(&[1.0], &[1.0])),
    );
    assert_eq!((claims.len(), lacking.len(), lacking[0].id.as_str()), (1, 1, "x"));
}

/// As where `unspin lab run` was interrupted, or nobody looks after a claim's cells.
#[test]
fn a_claim_without_a_figure_is_named() {
    let mut records = two(&around(10.0), &around(10.0));
    for record in &mut records {
        record.co_metrics.insert("f".into(), 1.0);
    }
    let of = |scheduler: &str| Cell { workload: "hackbench".into(), ..cell(scheduler) };
    let elsewhere = Cell { topology: "4:1".into(), ..cell("stock") };
    let mut planned: BTreeSet<Cell> = records.iter().map(|record| record.cell.clone()).collect();
    planned.extend([of("unspin"), of("stock"), elsewhere]);
    let summary = summary_of(&records);
    let id = "x.{workload}.{topology}";
    let of_unspin = || json!({ "id": id, "scheduler": "unspin" });
    let median = |figure: &str, workload: Option<&str>| {
        let mut spec = of_unspin();
        spec["figure"] = figure.into();
        spec["workload"] = workload.into();
        spec
    };
    for (from, more, expected) in [
        ("speed-ratio", of_unspin(), "x.hackbench.2:1"),
        ("figure-cut", of_unspin(), "x.hackbench.2:1"),
        ("spread", of_unspin(), "x.hackbench.2:1"),
        ("scheduler-ratio", of_unspin(), "x.hackbench.2:1"),
        ("figure-median", median("f", None), "x.hackbench.2:1"),
        ("boot-s", json!({ "id": "x.{topology}" }), "x.4:1"),
        // None of the cells has a figure.
        ("figure-median", median("g", Some("rename")), id),
        ("topology-loss", json!({ "id": id }), id),
        ("sense-precision", json!({}), "x"),
        ("truth-error-us", json!({}), "x"),
        ("aa-false-positive", json!({}), "x"),
    ] {
        let spec = spec(from, more);
        spec.check().unwrap();
        let (_, lacking) = evaluate(&[spec], &summary, &planned, &Origin::default()).unwrap();
        let ids: Vec<&str> = lacking.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(ids, [expected], "{from}: {lacking:?}");
    }
    let error = claim_of(spec("spread", json!({})), &summary_of(&records[..1])).unwrap_err();
    assert!(error.contains("takes two results"), "{error}");
    let spec = spec("figure-median", json!({ "figure": "f", "topology": "8:1" }));
    let error = claim_of(spec, &summary).unwrap_err();
    assert!(error.contains("no planned run of the folder is about it"), "{error}");
}

#[test]
fn an_oracle_without_runs_is_not_left_out_of_a_mean() {
    let mut records = two(&around(10.0), &around(10.0));
    let held = runs(cell("hold:2"), Better::Higher, &around(10.0));
    records.extend(held.into_iter().map(|record| failed(record, FailureKind::GuestPanic)));
    let summary = summary_of(&records);
    let spec = spec("speed-geomean", json!({ "scheduler": "unspin", "against": "oracle" }));
    let error = claim_of(spec, &summary).unwrap_err();
    assert!(error.contains("`rename 2:1 unspin lab` is compared with"), "{error}");
}

#[test]
fn an_oracle_rests_on_the_runs_of_its_choices() {
    let mut records = runs(cell("stock"), Better::Higher, &around(10.0));
    let held = runs(cell("hold:2"), Better::Higher, &around(20.0)).into_iter();
    let lost = |record: RunRecord| match record.block < 7 {
        true => failed(record, FailureKind::GuestPanic),
        false => record,
    };
    records.extend(held.map(lost));
    let claim = claim_of(spec("oracle-ratio", json!({})), &summary_of(&records)).unwrap();
    assert_eq!((claim.n, claim.lo, claim.hi), (3, None, None), "{claim:?}");
}

#[test]
fn ratios_of_0_and_without_a_bound_have_no_mean() {
    let mut records = two(&NEVER, &around(10.0));
    for mut record in two(&around(10.0), &NEVER) {
        record.cell.workload = "hackbench".into();
        record.run += 500_000_000;
        records.push(record);
    }
    let summary = summary_of(&records);
    let error = against_stock("speed-geomean", &summary).unwrap_err();
    assert!(error.contains("have no mean"), "{error}");
    assert_eq!(against_stock("speed-least", &summary).unwrap().value, Some(0.0));
}

#[test]
fn a_mean_needs_every_planned_cell() {
    let mut summary = summary_of(&two(&around(10.0), &around(10.0)));
    summary.experiment.repeats = 10;
    assert!(against_stock("speed-geomean", &summary).is_ok());
    // Two more cells are planned, and none of their runs exists yet.
    summary.planned = 40;
    for from in ["speed-geomean", "speed-least", "speed-least-by-chance"] {
        let error = against_stock(from, &summary).unwrap_err();
        assert!(error.contains("2 of 4 planned ones have no run"), "{from}: {error}");
    }
    assert!(against_stock("speed-ratio", &summary).is_ok());
    summary.cells.clear();
    assert!(against_stock("speed-geomean", &summary).is_err());
}

#[test]
fn a_loss_against_what_never_finished_is_below_all_others() {
    let at = |topology: &str| Cell { topology: topology.into(), ..cell("stock") };
    let mut records = runs(at("2:1"), Better::Higher, &around(10.0));
    records.extend(runs(at("1:1"), Better::Higher, &NEVER));
    let info = ExperimentInfo { baseline_topology: Some("1:1".into()), ..info() };
    let summary = crate::summarize(info, Machine::default(), 20, 1.0, &records);
    for (target, holds) in [("<= 50", true), (">= 50", false)] {
        let spec = spec("topology-loss", json!({ "target": target }));
        let claim = claim_of(spec, &summary).unwrap();
        assert_eq!((claim.value, claim.holds), (None, Some(holds)), "{claim:?}");
    }
}

#[test]
fn a_cut_of_what_was_not_there_is_not_met() {
    let cut = |unspin: f64, stock: f64| {
        let mut records = two(&around(10.0), &around(10.0));
        for record in &mut records {
            let value = if record.cell.scheduler == "unspin" { unspin } else { stock };
            record.co_metrics.insert("storms".into(), value);
        }
        let more = json!({ "scheduler": "unspin", "figure": "storms", "target": ">= 50" });
        let claim = claim_of(spec("figure-cut", more), &summary_of(&records)).unwrap();
        (claim.value, claim.holds)
    };
    assert_eq!(cut(1.0, 4.0), (Some(75.0), Some(true)));
    assert_eq!(cut(3.0, 0.0), (None, Some(false)));
    assert_eq!(cut(0.0, 0.0), (Some(0.0), Some(false)));
}

#[test]
fn what_did_not_finish_counts_in_a_cut_and_leaves_no_spread() {
    let mut unspin = [4.0; 10];
    unspin[..6].fill(0.0);
    let mut records = runs(cell("unspin"), Better::Lower, &unspin);
    records.extend(runs(cell("stock"), Better::Lower, &[10.0; 10]));
    let summary = summary_of(&records);
    let cut = spec("figure-cut", json!({ "scheduler": "unspin", "target": ">= 50" }));
    let claim = claim_of(cut, &summary).unwrap();
    assert_eq!((claim.value, claim.holds, claim.n), (None, Some(false), 10), "{claim:?}");
    let error = claim_of(spec("spread", json!({ "scheduler": "unspin" })), &summary).unwrap_err();
    assert!(error.contains("6 of 10 runs of `rename 2:1 unspin lab` did not finish"), "{error}");
    assert!(claim_of(spec("spread", json!({ "scheduler": "stock" })), &summary).is_ok());
}

#[test]
fn a_run_that_failed_is_none_that_is_right() {
    let mut records = two(&around(10.0), &around(10.0));
    for record in &mut records {
        record.co_metrics.insert("right".into(), 1.0);
    }
    records[3] = failed(records[3].clone(), FailureKind::WorkloadFailed);
    let share = spec("figure-share", json!({ "figure": "right" }));
    let claim = claim_of(share, &summary_of(&records)).unwrap();
    assert_eq!((claim.value, claim.n), (Some(95.0), 20), "{claim:?}");
}

#[test]
fn the_most_memory_is_that_of_a_run_and_not_of_a_median() {
    let mut records = two(&around(10.0), &around(10.0));
    for record in records.iter_mut().filter(|record| record.cell.scheduler == "unspin") {
        record.co_metrics.insert(AGENT_MEMORY.into(), 20.0 + f64::from(record.block));
    }
    let memory = spec("agent-memory", json!({ "scheduler": "unspin", "target": "<= 28" }));
    let claim = claim_of(memory, &summary_of(&records)).unwrap();
    assert_eq!((claim.lo, claim.value, claim.hi), (Some(20.0), Some(29.0), Some(29.0)));
    assert_eq!((claim.holds, claim.n), (Some(false), 10));
}

#[test]
fn a_claim_without_a_bound_survives_json() {
    let claim = against_stock("speed-geomean", &summary_of(&two(&around(10.0), &NEVER))).unwrap();
    let text = serde_json::to_string(&claim).unwrap();
    assert_eq!(serde_json::from_str::<Claim>(&text).unwrap(), claim);
}

#[test]
fn the_truth_rests_on_the_intervals_that_were_compared() {
    let mut records = runs(cell("stock"), Better::Higher, &[1.0]);
    let pairs_us = vec![[500.0, 500.0, 510.0]; 6];
    let injected = InjectionCheck { injected: 10, missing: 1, not_on: 2, prolonged: 1, pairs_us };
    records[0].truth = Some(TruthSummary { injected: Some(injected), ..Default::default() });
    let summary = summary_of(&records);
    let n = |from: &str| claim_of(spec(from, json!({})), &summary).unwrap().n;
    assert_eq!((n("truth-error-us"), n("truth-beyond")), (6, 7));
}
