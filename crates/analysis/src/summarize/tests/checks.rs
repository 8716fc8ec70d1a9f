use super::*;
use unspin_model::{TruthSummary, run::InjectionCheck};

#[test]
fn carry_over_is_seen_where_later_runs_are_slower() {
    let mut records = runs(cell("stock"), Better::Higher, &around(10.0));
    records.extend(runs(cell("hold:2"), Better::Higher, &around(50.0)));
    for record in &mut records {
        record.position = record.block % 5;
        let value = record.observation().flatten().unwrap();
        record.outcome = Outcome::Done { value: value * (1.0 - 0.1 * f64::from(record.position)) };
    }
    let found = &summary_of(&records).carry_over[0];
    assert!(found.rank_correlation < -0.9 && found.p < 0.001, "{found:?}");
    assert_eq!((found.workload.as_str(), found.n), ("rename", 20));

    records.iter_mut().for_each(|record| record.position = 0);
    assert!(summary_of(&records).carry_over.is_empty());
}

#[test]
fn unfinished_runs_say_nothing_about_carry_over() {
    let mut records = runs(cell("stock"), Better::Higher, &[10.0, 11.0, 0.0, 12.0, 0.0]);
    records.iter_mut().for_each(|record| record.position = record.block);
    assert_eq!(summary_of(&records).carry_over[0].n, 3);
}

#[test]
fn a_boot_counts_once_however_many_runs_it_had() {
    let mut records = runs(cell("stock"), Better::Higher, &[1.0; 12]);
    for record in &mut records {
        // Boot 0 has ten runs, boots 1 and 2 one each.
        record.boot = record.block.saturating_sub(9);
        record.boot_s = [5.0, 6.0, 7.0][record.boot as usize];
    }
    let summary = summary_of(&records);
    assert_eq!((summary.boot_s["2:1"].value, summary.boots["2:1"]), (6.0, 3));
    let spec = serde_json::json!({ "id": "x", "what": "x", "from": "boot-s" });
    let claims = claims_of(&[serde_json::from_value(spec).unwrap()], &summary);
    assert_eq!((claims[0].value, claims[0].n), (Some(6.0), 3), "of boots, and not of runs");
    assert_eq!(summary.lab_cpu_share.unwrap().value, 0.01);
    records[..6].iter_mut().for_each(|record| record.lab_cpu_share = 0.0);
    assert_eq!(summary_of(&records).lab_cpu_share.unwrap().value, 0.005, "0 is a share");
    for record in &mut records {
        record.label.accel = Some(Accel::Vt);
        record.boot = 0;
    }
    assert_eq!(summary_of(&records).boot_s["2:1"].value, 5.0, "ten of twelve runs took that");
}

#[test]
fn failed_attempts_are_counted_by_reason() {
    let records = runs(cell("stock"), Better::Higher, &[1.0; 3]);
    let mut attempts: Vec<_> =
        records.iter().map(|r| failed(r.clone(), FailureKind::Int3Oops)).collect();
    attempts.extend(records.into_iter().map(|r| RunRecord { attempt: 2, ..r }));
    attempts[4] = failed(attempts[4].clone(), FailureKind::QemuDied);
    let summary = summary_of(&attempts);
    let failures: Vec<_> = summary.failures.into_iter().collect();
    assert_eq!(failures, [(FailureKind::Int3Oops, 3), (FailureKind::QemuDied, 1)]);
    assert_eq!((summary.retries, summary.done, summary.cells[0].failed), (3, 2, 1));
    assert_eq!(summary.labels, [label()]);
}

#[test]
fn injected_intervals_are_pooled_by_their_length() {
    let mut records = runs(cell("stock"), Better::Higher, &[1.0; 2]);
    let with = |missing, pairs_us: &[[f64; 3]]| {
        let injected = pairs_us.len() as u64 + missing;
        let pairs_us = pairs_us.to_vec();
        let injected = InjectionCheck { injected, missing, pairs_us, ..Default::default() };
        Some(TruthSummary { injected: Some(injected), ..Default::default() })
    };
    // 90 us of 500 us: more than 5 %, but not more than 100 us. 400 us of 10,000 us: the reverse.
    // 600 us of 10,000 us is beyond both.
    records[0].truth = with(0, &[[500.0, 510.0, 600.0], [10_000.0, 10_000.0, 10_400.0]]);
    records[1].truth = with(1, &[[500.0, 500.0, 480.0], [10_000.0, 10_000.0, 9_400.0]]);
    let found = summary_of(&records).truth.unwrap();
    assert_eq!((found.injected, found.missing), (5, 1));
    let at: Vec<_> = found
        .by_length
        .iter()
        .map(|at| (at.length_ms, at.n, at.median_us, at.max_us, at.beyond))
        .collect();
    assert_eq!(at, [(0.5, 2, 55.0, 90.0, 0.0), (10.0, 2, 500.0, 600.0, 0.5)]);
    assert_eq!(summary_of(&records[..0]).truth, None);
}
