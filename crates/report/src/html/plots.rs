//! The page's plots.

use std::collections::BTreeSet;

use unspin_model::summary::{Comparison, ComparisonKind, Estimate, Summary};

use super::context::Figure;
use crate::claims::distribution::pooled;
use crate::svg::{
    Cumulative, Curve, ForestRow, Panel, SERIES, Strip, StripRow, cumulative, forest, strip,
};
use crate::view::{self, Workload};

/// Returns one forest plot for each question: what a topology costs, how much of that the oracle
/// regains, and what each scheduler and kernel changes.
pub fn forests(summary: &Summary, workloads: &[Workload<'_>]) -> Vec<Figure> {
    let mut groups: Vec<(String, Vec<ForestRow>)> = Vec::new();
    for kind in view::KINDS {
        for (place, comparison) in view::told(workloads, kind) {
            let title = forest_title(comparison);
            let row = forest_row(comparison, place);
            match groups.iter_mut().find(|(of, _)| *of == title) {
                Some((_, rows)) => rows.push(row),
                None => groups.push((title, vec![row])),
            }
        }
    }
    let effect = summary.experiment.smallest_effect;
    let figure = |(title, rows): (String, Vec<ForestRow>)| {
        let label = format!("Forest plot of {} ratios: {title}", rows.len());
        Figure { svg: forest(&label, &rows, effect), title }
    };
    groups.into_iter().map(figure).collect()
}

fn forest_title(comparison: &Comparison) -> String {
    let against = view::against(comparison);
    match comparison.kind {
        ComparisonKind::Topology => {
            format!("What the topology costs: {} against {against}", comparison.subject.scheduler)
        }
        ComparisonKind::Oracle => {
            format!("What the best static choice gets back: the oracle against {against}")
        }
        ComparisonKind::Scheduler => format!("{} against {against}", comparison.subject.scheduler),
        ComparisonKind::Kernel => {
            let subject = view::kernel_name(&comparison.subject);
            format!("{subject} against {against}, {}", comparison.subject.scheduler)
        }
    }
}

fn forest_row(comparison: &Comparison, place: &str) -> ForestRow {
    // A row without a ratio is an arrow at the better end. If neither side finished, they are
    // equal.
    let alike = Estimate { value: 1.0, lo: f64::NAN, hi: f64::NAN };
    let neither = (!comparison.subject_finished).then_some(alike);
    ForestRow {
        group: comparison.subject.workload.clone(),
        name: place.into(),
        ratio: comparison.ratio.or(neither),
        verdict: comparison.verdict,
        text: view::ratio_text(comparison),
    }
}

/// Plots every run of a workload.
pub fn distributions(summary: &Summary, workload: &Workload<'_>) -> String {
    let schedulers = schedulers(summary);
    let cells = || workload.places.iter().flat_map(|p| p.cells.iter().map(move |c| (p, *c)));
    let runs: usize = cells().map(|(_, cell)| cell.values.len()).sum();
    let metric = workload.metric;
    let rows = cells().map(|(place, cell)| StripRow {
        place: place.name.clone(),
        scheduler: &cell.cell.scheduler,
        series: schedulers.iter().position(|s| *s == cell.cell.scheduler).unwrap_or(0) % SERIES,
        values: &cell.values,
        median: cell.median,
    });
    strip(&Strip {
        label: format!("Every run of {}: {runs} runs in {} cells", workload.name, cells().count()),
        axis: [metric.name.as_str(), metric.unit.as_str()].join(", "),
        unit: &metric.unit,
        better: metric.better,
        rows: rows.collect(),
    })
}

/// Plots the distribution of each latency that a workload's runs kept.
pub fn latencies(workload: &Workload<'_>) -> Vec<Figure> {
    let cells = || workload.places.iter().flat_map(|p| p.cells.iter().map(move |c| (p, *c)));
    let names: BTreeSet<&String> = cells().flat_map(|(_, cell)| cell.latencies.keys()).collect();
    let figure = |name: &&String| {
        let with = cells().filter_map(|(place, cell)| Some((place, cell, pooled(cell, name)?)));
        let curves = (0..).zip(with).map(|(series, (place, cell, lengths))| Curve {
            name: format!("{} {}", place.name, cell.cell.scheduler),
            series,
            lengths,
        });
        let title = name.replacen("_us", ", us", 1);
        let label = format!("Cumulative distribution of {title} of {}", workload.name);
        let panels = vec![Panel { axis: title.clone(), curves: curves.collect() }];
        Figure { svg: cumulative(&Cumulative { label, panels }), title }
    };
    names.iter().map(figure).collect()
}

/// Returns the schedulers, the baseline first: each has one colour in all plots.
fn schedulers(summary: &Summary) -> Vec<&str> {
    let mut out = vec![summary.experiment.baseline_scheduler.as_str()];
    for cell in &summary.cells {
        if !out.contains(&cell.cell.scheduler.as_str()) {
            out.push(&cell.cell.scheduler);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unbounded(subject_finished: bool) -> Comparison {
        let cell = |scheduler: &str| {
            serde_json::json!({
                "topology": "2:1", "kernel": "lab", "boot_params": "", "scheduler": scheduler,
                "workload": "rename",
            })
        };
        let comparison = serde_json::json!({
            "kind": "scheduler", "subject": cell("unspin"), "baseline": cell("stock"),
            "ratio": null, "subject_finished": subject_finished, "p": 1.0, "p_adjusted": 1.0,
            "verdict": "no-difference-shown", "neighbours": {}, "choice": null,
        });
        serde_json::from_value(comparison).unwrap()
    }

    #[test]
    fn only_a_subject_that_finished_is_beyond_the_better_end() {
        let plot = |finished| forest("x", &[forest_row(&unbounded(finished), "2:1")], 0.03);
        assert!(plot(true).contains("arrow none") && !plot(true).contains("dot none"));
        let neither = plot(false);
        assert!(neither.contains("dot none") && !neither.contains("arrow none"), "{neither}");
        assert!(neither.contains("neither finished"));
    }
}
