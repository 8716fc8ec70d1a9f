use serde_json::json;
use unspin_stats::counted;

use super::*;

/// Returns runs whose latency is `usual` for nine of ten lengths and `rare` for the tenth, both a
/// little different in each block.
fn runs_of(topology: &str, usual: f64, rare: f64) -> Vec<RunRecord> {
    let place = Cell { topology: topology.into(), ..cell("stock") };
    let mut records = runs(place, Better::Lower, &[1.0; 5]);
    for record in &mut records {
        let more = 1.0 + f64::from(record.block) / 10.0;
        let lengths = (0..20).map(|i| more * if i % 10 == 9 { rare } else { usual });
        record.latencies.insert("wake_us".into(), counted(lengths));
    }
    records
}

fn claims(from: &str, id: &str, more: serde_json::Value) -> Vec<Claim> {
    let records = [runs_of("with", 20.0, 900.0), runs_of("without", 80.0, 1000.0)].concat();
    let mut spec = json!({ "id": id, "what": "x", "from": from, "figure": "wake_us" });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let spec: ClaimSpec = serde_json::from_value(spec).unwrap();
    spec.check().unwrap();
    claims_of(&[spec], &summary_of(&records))
}

#[test]
fn quantiles_are_of_all_runs_of_a_cell_together() {
    let found = claims("latency-quantile", "{topology}.{quantile}", json!({"topology": "with"}));
    let of = |claim: &Claim| (claim.id.clone(), claim.value.unwrap(), claim.unit.clone(), claim.n);
    let expected = [("p50", 24.0), ("p90", 28.0), ("p99", 1260.0)];
    let expected =
        expected.map(|(quantile, us)| (format!("with.{quantile}"), us, "us".to_owned(), 5));
    assert_eq!(found.iter().map(of).collect::<Vec<_>>(), expected);
    assert_eq!((found[0].lo, found[0].hi), (Some(20.0), Some(28.0)));
}

#[test]
fn what_blocks_have_in_common_cancels_out_of_a_ratio() {
    let pair = json!({"topology": "with", "against_topology": "without"});
    let found = claims("latency-ratio", "{quantile}", pair.clone());
    let of = |claim: &Claim| (claim.id.clone(), claim.lo, claim.value.unwrap(), claim.hi);
    let [p50, p90, p99] = &found[..] else { panic!("{found:?}") };
    assert_eq!(of(p50), ("p50".into(), Some(0.25), 0.25, Some(0.25)));
    assert_eq!((of(p90).2, p90.unit.as_str()), (0.25, "x"));
    assert!((of(p99).2 - 0.9).abs() < 0.01, "{p99:?}");
    let found = claims("latency-tail", "tail", pair);
    let [tail] = &found[..] else { panic!("{found:?}") };
    assert!((tail.value.unwrap() - 3.6).abs() < 0.01 && tail.lo > Some(3.5), "{tail:?}");
}

#[test]
fn a_ratio_rests_on_the_side_with_fewer_runs() {
    let others = runs_of("without", 80.0, 1000.0)[..2].to_vec();
    let records = [runs_of("with", 20.0, 900.0), others].concat();
    let spec = json!({
        "id": "{quantile}", "what": "x", "from": "latency-ratio", "figure": "wake_us",
        "topology": "with", "against_topology": "without",
    });
    let spec: ClaimSpec = serde_json::from_value(spec).unwrap();
    let found = claims_of(&[spec], &summary_of(&records));
    assert_eq!((found[0].n, found[0].lo, found[0].hi), (2, None, None), "{found:?}");
}

#[test]
fn what_was_never_counted_is_named() {
    let mut records = [runs_of("with", 20.0, 900.0), runs_of("without", 80.0, 1000.0)].concat();
    for record in records.iter_mut().filter(|record| record.cell.topology == "without") {
        record.latencies.insert("wake_us".into(), Vec::new());
    }
    let spec = |from: &str, more: serde_json::Value| -> ClaimSpec {
        let mut spec =
            json!({ "id": "{quantile}", "what": "x", "from": from, "figure": "wake_us" });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    };
    let pair = json!({"topology": "with", "against_topology": "without"});
    for spec in [
        spec("latency-quantile", json!({"topology": "without"})),
        spec("latency-ratio", pair.clone()),
    ] {
        let (claims, lacking) = evaluated(&[spec], &summary_of(&records));
        let ids: Vec<&str> = lacking.iter().map(|one| one.id.as_str()).collect();
        assert!(claims.is_empty() && ids == ["p50", "p90", "p99"], "{lacking:?}");
    }
    // No run of one side has a result.
    records.retain(|record| record.cell.topology == "with");
    let without = Cell { topology: "without".into(), ..cell("stock") };
    let planned = [records[0].cell.clone(), without].into();
    let specs = [spec("latency-ratio", pair)];
    let (claims, lacking) =
        evaluate(&specs, &summary_of(&records), &planned, &Origin::default()).unwrap();
    assert!(claims.is_empty(), "{claims:?}");
    assert_eq!(lacking[0].why, "no run of `rename without stock lab` has a result");
}

#[test]
fn a_ratio_names_the_other_topology() {
    let spec = json!({"id": "x", "what": "x", "from": "latency-ratio", "figure": "wake_us"});
    let spec: ClaimSpec = serde_json::from_value(spec).unwrap();
    assert!(spec.check().unwrap_err().1.contains("needs an `against_topology`"));
}
