//! The values for the page's templates: texts, ready to print.

use serde::Serialize;
use unspin_analysis::family;
use unspin_model::summary::{Comparison, Summary, Verdict};
use unspin_model::{Accel, Label, Source};

use super::evidence::{self, Evidence};
use super::plots;
use super::sections::{self, NeighbourRow, OracleRow, WorkloadSection};
use crate::headline::Finding;
use crate::svg::forest::verdict_class;
use crate::{format, headline, view};

/// The whole page.
#[derive(Serialize)]
pub struct Page {
    pub name: String,
    pub title: String,
    pub about: String,
    pub badges: Vec<Badge>,
    pub measured: String,
    pub label: String,
    pub caution: Option<&'static str>,
    pub too_few_runs: Option<String>,
    pub findings: Vec<Finding>,
    pub facts: Vec<Fact>,
    pub forests: Vec<Figure>,
    pub baseline: String,
    pub smallest_effect: String,
    pub oracle: Vec<OracleRow>,
    pub neighbours: Vec<NeighbourRow>,
    pub workloads: Vec<WorkloadSection>,
    pub evidence: Evidence,
    pub machine: Vec<Fact>,
    pub labels: Vec<String>,
}

/// A marked word on the origin of figures.
#[derive(Serialize, PartialEq)]
pub struct Badge {
    pub text: &'static str,
    pub class: &'static str,
    pub title: &'static str,
}

/// A term and its value.
#[derive(Serialize)]
pub struct Fact {
    pub term: &'static str,
    pub value: String,
}

/// A plot with its title.
#[derive(Serialize)]
pub struct Figure {
    pub title: String,
    pub svg: String,
}

/// A ratio with its verdict.
#[derive(Serialize)]
pub struct Ratio {
    pub value: String,
    pub interval: String,
    pub p: String,
    pub p_adjusted: String,
    pub verdict: &'static str,
    pub class: &'static str,
}

impl Ratio {
    pub fn of(comparison: &Comparison) -> Ratio {
        let (value, interval) = match (view::unfinished(comparison), &comparison.ratio) {
            (None, Some(r)) => {
                (format!("{}x", format::ratio_number(r.value)), format::ratio_interval(r))
            }
            (words, _) => (words.unwrap_or_default(), String::new()),
        };
        Ratio {
            value,
            interval,
            p: format::p_value(comparison.p),
            p_adjusted: format::p_value(comparison.p_adjusted),
            verdict: format::verdict(comparison.verdict),
            class: verdict_class(comparison.verdict),
        }
    }
}

/// Returns the values for the page of a summary.
pub fn page(summary: &Summary) -> Page {
    let experiment = &summary.experiment;
    let workloads = view::workloads(summary);
    let title = if experiment.title.is_empty() { &experiment.name } else { &experiment.title };
    Page {
        name: experiment.name.clone(),
        title: title.clone(),
        about: experiment.about.clone(),
        badges: badges(&summary.labels),
        measured: headline::measured(summary),
        label: view::labels_text(&summary.labels),
        caution: headline::caution(summary),
        too_few_runs: headline::too_few_runs(summary),
        findings: headline::findings(summary),
        facts: facts(summary),
        forests: plots::forests(summary, &workloads),
        baseline: experiment.baseline_scheduler.clone(),
        smallest_effect: format::percent(experiment.smallest_effect),
        oracle: sections::oracle(summary, &workloads),
        neighbours: sections::neighbours(&workloads),
        workloads: sections::workloads(summary, &workloads),
        evidence: evidence::evidence(summary),
        machine: machine(summary),
        labels: label_lines(&summary.labels),
    }
}

fn badges(labels: &[Label]) -> Vec<Badge> {
    let mut out = Vec::new();
    for badge in labels.iter().flat_map(badges_of) {
        if !out.contains(&badge) {
            out.push(badge);
        }
    }
    out
}

fn badges_of(label: &Label) -> Vec<Badge> {
    let mut out = vec![match (label.source, label.accel) {
        (Source::Sim, _) => {
            Badge { text: "sim", class: "sim", title: "Figures from the simulator" }
        }
        (Source::Lab, Some(Accel::Kvm)) => Badge {
            text: "kvm",
            class: "kvm",
            title: "Real virtual machines, hardware virtualization",
        },
        (Source::Lab, Some(Accel::Tcg)) => {
            Badge { text: "tcg", class: "tcg", title: "Real virtual machines, software emulation" }
        }
        (Source::Lab, Some(Accel::Vt)) => Badge {
            text: "vt",
            class: "sim",
            title: "Real guests on a simulated host, in virtual time",
        },
        (Source::Lab, None) => {
            Badge { text: "lab", class: "lab", title: "Real virtual machines, accelerator unknown" }
        }
    }];
    if label.nested {
        let title = "The subject ran under a real KVM inside an emulated host";
        out.push(Badge { text: "nested kvm", class: "nested", title });
    }
    out
}

fn facts(summary: &Summary) -> Vec<Fact> {
    let runs = match summary.planned {
        planned if planned == summary.done => format::count(planned),
        planned => format!("{} of {}", format::count(summary.done), format::count(planned)),
    };
    let counted = || family::counted(&summary.comparisons);
    let verdicts = |wanted| {
        let count = counted().filter(|c| c.verdict == wanted).count();
        format::count(count as u64)
    };
    let unfinished: u64 = summary.cells.iter().map(|c| u64::from(c.unfinished)).sum();
    vec![
        Fact { term: "runs", value: runs },
        Fact { term: "cells", value: format::count(summary.cells.len() as u64) },
        Fact { term: "did not finish", value: format::count(unfinished) },
        Fact { term: "comparisons", value: format::count(counted().count() as u64) },
        Fact { term: "without a difference shown", value: verdicts(Verdict::NoDifferenceShown) },
        Fact { term: "with too few runs", value: verdicts(Verdict::TooFewRuns) },
        Fact { term: "spent measuring", value: format::duration(summary.elapsed_s) },
    ]
}

fn machine(summary: &Summary) -> Vec<Fact> {
    let machine = &summary.machine;
    let mut out = vec![
        Fact { term: "CPU", value: format!("{} ({} online)", machine.cpu, machine.cpus) },
        Fact { term: "Memory", value: format!("{} MiB", format::count(machine.memory_mib)) },
        Fact { term: "Distribution", value: machine.distribution.clone() },
        Fact { term: "Host kernel", value: machine.kernel.clone() },
        Fact { term: "QEMU", value: machine.qemu.clone() },
        Fact { term: "unspin", value: machine.unspin.clone() },
        Fact { term: "Commit", value: machine.commit.clone() },
        Fact { term: "Experiment", value: summary.experiment.name.clone() },
        Fact { term: "Repeats of each cell", value: summary.experiment.repeats.to_string() },
        Fact { term: "Seed of the order", value: summary.experiment.seed.to_string() },
    ];
    out.retain(|fact| !fact.value.is_empty());
    out
}

fn label_lines(labels: &[Label]) -> Vec<String> {
    labels.iter().map(|label| format!("{label}; host {}", label.host)).collect()
}
