//! Comparison of two experiments.

use unspin_analysis::compare::compare;
use unspin_model::summary::{Summary, Verdict};
use unspin_report::compare::terminal;

use crate::common;

/// Returns the same experiment, in which rename at 2:1 became twice as fast.
fn changed() -> Summary {
    let mut summary = common::few();
    for cell in &mut summary.cells {
        if cell.cell.workload == "rename" && cell.cell.topology == "2:1" {
            cell.values.iter_mut().for_each(|(_, v)| *v = v.map(|v| 2.0 * v));
            cell.median = cell.median.map(|mut m| {
                (m.value, m.lo, m.hi) = (2.0 * m.value, 2.0 * m.lo, 2.0 * m.hi);
                m
            });
        }
    }
    summary
}

#[test]
fn a_summary_does_not_differ_from_itself() {
    let report = compare(&common::few(), &common::few());
    assert!(report.warnings.iter().all(|w| w.contains("lacks")), "{:?}", report.warnings);
    assert_eq!(report.cells.len(), 18);
    for cell in &report.cells {
        assert_eq!(cell.verdict, Verdict::NoDifferenceShown, "{}", cell.cell);
    }
}

#[test]
fn a_change_is_found_with_its_size_and_direction() {
    let report = compare(&common::few(), &changed());
    for cell in &report.cells {
        if cell.cell.workload == "rename" && cell.cell.topology == "2:1" {
            assert_eq!(cell.verdict, Verdict::Better);
            assert!((cell.ratio.unwrap().value - 2.0).abs() < 1e-9);
        } else {
            assert_eq!(cell.verdict, Verdict::NoDifferenceShown);
        }
    }
    let back = compare(&changed(), &common::few());
    assert_eq!(back.cells.iter().filter(|c| c.verdict == Verdict::Worse).count(), 3);
}

#[test]
fn cells_of_one_side_and_differences_of_the_machines_are_told() {
    let (a, mut b) = (common::few(), changed());
    b.machine.cpu = "Another".into();
    b.labels[0].kernel = "7.3".into();
    b.cells.retain(|c| c.cell.scheduler != "scx_bpfland");
    b.cells[0].cell.workload = "new".into();
    b.cells[1].metric.unit = "1/s".into();
    b.cells[2].values.clear();
    let report = compare(&a, &b);
    assert_eq!((report.cells.len(), report.only_in_a.len(), report.only_in_b.len()), (9, 7, 1));
    let told = |text: &str| report.warnings.iter().any(|w| w.contains(text));
    assert!(told("Different CPU models: Intel(R) Xeon(R) Processor @ 2.60GHz in A, Another in B."));
    assert!(told(
        "Different labels: lab/tcg, kernel 6.18.5+deb12-cloud-amd64 in A, lab/tcg, kernel 7.3 in B."
    ));
    assert!(told("measure different metrics"));
    assert!(told("B has no runs"));
    insta::assert_snapshot!(terminal(&report, 100));
}

#[test]
fn one_kernel_is_held_against_another() {
    let mut b = changed();
    b.cells.iter_mut().for_each(|c| c.cell.kernel = "lab".into());
    let report = compare(&common::few(), &b);
    assert_eq!((report.cells.len(), report.only_in_a.len(), report.only_in_b.len()), (18, 0, 0));
    let told = "Different kernels: debian-cloud in A, lab in B.";
    assert!(report.warnings.iter().any(|w| w == told), "{:?}", report.warnings);
    b.cells[0].cell.kernel = "debian-cloud".into();
    assert_eq!(compare(&common::few(), &b).cells.len(), 1);
}

#[test]
fn nothing_in_common_is_said() {
    let mut b = common::few();
    b.cells.iter_mut().for_each(|c| c.cell.topology = "8:1".into());
    let report = compare(&common::few(), &b);
    assert!(terminal(&report, 80).contains("no cell in common"));
}

#[test]
fn the_json_form_has_the_fields_of_the_report() {
    let json = serde_json::to_value(compare(&common::few(), &changed())).unwrap();
    assert!(json["cells"][0]["ratio"]["value"].is_f64());
    assert_eq!(json["cells"][0]["verdict"], "no-difference-shown");
    assert!(json["only_in_a"].as_array().unwrap().is_empty());
}
