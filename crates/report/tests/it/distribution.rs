//! Plots of the latencies that runs kept.

use unspin_report::claims::distribution::{
    CurveOf, Distribution, DistributionError, PanelOf, draw,
};

use crate::common;

fn plot(latency: &str) -> Distribution {
    let curve = CurveOf { name: "nobody helps".into(), topology: common::TOPOLOGIES[1].into() };
    let axis = "waits, us".into();
    let panel = PanelOf { axis, workload: "rename".into(), latency: latency.into() };
    Distribution {
        file: "a.svg".into(),
        label: "Waits".into(),
        results: "results/a".into(),
        curves: vec![curve],
        panels: vec![panel],
    }
}

#[test]
fn all_runs_of_a_cell_are_one_distribution() {
    let mut summary = common::summary();
    for cell in &mut summary.cells {
        let other = cell.cell.topology != common::TOPOLOGIES[1];
        let runs = [vec![(1.0, 1), (100.0, 1)], vec![(10.0, if other { 9 } else { 2 })]];
        cell.latencies.insert("wait_us".into(), (0..).zip(runs).collect());
    }
    let image = draw(&plot("wait_us"), &summary).unwrap();
    let (_, curve) = image.split_once("<path class=\"curve s0\" d=\"").unwrap();
    let (curve, _) = curve.split_once('"').unwrap();
    let heights: Vec<f64> = curve[1..]
        .split('L')
        .map(|point| point.split_once(' ').unwrap().1.parse().unwrap())
        .collect();
    // A quarter of the lengths is 1 us, half of them 10 us.
    let shares: Vec<f64> = heights.iter().map(|y| (heights[0] - y) / 170.0).collect();
    assert!(shares.contains(&0.25) && shares.contains(&0.75), "{curve}");
    let missing = draw(&plot("other_us"), &summary).unwrap_err();
    assert!(matches!(missing, DistributionError::NoLatency { .. }));
    assert!(missing.to_string().contains("other_us"), "{missing}");
}
