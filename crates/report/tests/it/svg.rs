//! Golden tests of the plots.

use unspin_model::Better;
use unspin_model::summary::{Estimate, Verdict};
use unspin_report::svg::{ForestRow, Strip, StripRow, forest, strip};

fn estimate(value: f64, lo: f64, hi: f64) -> Option<Estimate> {
    Some(Estimate { value, lo, hi })
}

fn rows() -> Vec<ForestRow> {
    let row = |group: &str, ratio, verdict, text: &str| ForestRow {
        group: group.into(),
        name: "2:1".into(),
        ratio,
        verdict,
        text: text.into(),
    };
    vec![
        row("rename", estimate(2.24, 2.1, 2.38), Verdict::Better, "2.24x"),
        row("vips", estimate(0.98, 0.9, 1.02), Verdict::NoDifferenceShown, "0.98x"),
        row("hackbench", None, Verdict::Better, "stock did not finish"),
        row("dbench", estimate(0.0, 0.0, 0.0), Verdict::Worse, "did not finish"),
        row("fio", estimate(1.4, 1.2, f64::INFINITY), Verdict::Better, "1.40x"),
    ]
}

#[test]
fn forest_plot() {
    insta::assert_snapshot!(forest("Five \"ratios\" & more", &rows(), 0.05));
}

#[test]
fn a_long_name_takes_its_room_from_the_plot() {
    let named = |name: &str| {
        let mut rows = rows();
        rows[0].name = name.to_owned();
        forest("x", &rows, 0.05)
    };
    let wide = |svg: &str| svg.split("</svg>").next().unwrap_or_default().to_owned();
    assert!(wide(&named("tdx-off-control")).contains(">tdx-off-control<"));
    let endless = format!(">{}<", "x".repeat(40));
    assert!(!wide(&named(&"x".repeat(40))).contains(&format!("{endless}/text")), "it is cut");
}

fn strip_of(better: Better, values: &[(u32, Option<f64>)]) -> String {
    strip(&Strip {
        label: "Runs".into(),
        axis: "time, s".into(),
        unit: "s",
        better,
        rows: vec![
            StripRow {
                place: "2:1".into(),
                scheduler: "stock",
                series: 0,
                values,
                median: estimate(2.0, 1.8, f64::INFINITY),
            },
            StripRow {
                place: "2:1".into(),
                scheduler: "a-very-long-scheduler-name",
                series: 1,
                values: &[],
                median: None,
            },
        ],
    })
}

#[test]
fn strip_plot_with_runs_that_did_not_finish() {
    insta::assert_snapshot!(strip_of(Better::Lower, &[(0, Some(1.8)), (1, None), (2, Some(2.0))]));
}

/// Returns the value of an attribute of the first element with a class.
fn attribute(svg: &str, class: &str, name: &str) -> f64 {
    let element = svg.split('<').find(|e| e.contains(&format!("class=\"{class}\""))).unwrap();
    element
        .split(&format!(" {name}=\""))
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn the_lane_of_unfinished_runs_is_at_the_worst_end() {
    let values = [(0, Some(1.0)), (1, None), (2, Some(2.0))];
    let lane_at = |better| attribute(&strip_of(better, &values), "lane", "x");
    let run_at = |better| attribute(&strip_of(better, &values), "run s0", "cx");
    assert!(lane_at(Better::Lower) > run_at(Better::Lower));
    assert!(lane_at(Better::Higher) < run_at(Better::Higher));
}

#[test]
fn no_figure_makes_a_position_that_is_none() {
    let strange = [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e-300, 1e300];
    let values: Vec<_> = strange.iter().map(|v| (0, Some(*v))).collect();
    let mut rows = rows();
    for value in strange {
        rows[0].ratio = estimate(value, value, value);
        let text = forest("x", &rows, 0.05) + &strip_of(Better::Higher, &values);
        let attributes = text.replace("not a number", "");
        assert!(!attributes.contains("=\"NaN") && !attributes.contains("=\"inf"), "{value}");
    }
    assert!(forest("none", &[], 0.0).contains("</svg>"));
}
