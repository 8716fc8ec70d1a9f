//! The findings in sentences: the first part of every report.

use std::fmt;

use serde::Serialize;
use unspin_analysis::family;
use unspin_model::summary::{Comparison, ComparisonKind, Summary, Verdict};
use unspin_model::{Accel, Source};

use crate::format::{self, plural};
use crate::view;

/// Returns a sentence on what was measured, how often, and under which label.
pub fn measured(summary: &Summary) -> String {
    let runs = if summary.done == summary.planned {
        plural(summary.done, "run", "runs")
    } else {
        format!(
            "{} of {} planned runs",
            format::count(summary.done),
            format::count(summary.planned)
        )
    };
    format!(
        "{}: {} in {} ({}, {}).",
        summary.experiment.name,
        runs,
        plural(summary.cells.len() as u64, "cell", "cells"),
        runs_a_cell(summary),
        format::duration(summary.elapsed_s),
    )
}

fn runs_a_cell(summary: &Summary) -> String {
    let counts = || summary.cells.iter().map(|c| c.n);
    match (counts().min(), counts().max()) {
        (Some(min), Some(max)) if min == max => format!("n = {min} each"),
        (Some(min), Some(max)) => format!("n = {min} to {max}"),
        _ => "none yet".into(),
    }
}

/// Returns a sentence on the label, if figures with it need a caution.
pub fn caution(summary: &Summary) -> Option<&'static str> {
    let labels = &summary.labels;
    if labels.iter().any(|l| l.source == Source::Sim) {
        Some("Simulated figures, not measurements.")
    } else if labels.iter().any(|l| l.accel == Some(Accel::Vt)) {
        Some(
            "Virtual time: the host and the prices of exits are simulated, the guests are real; intervals are over seeds.",
        )
    } else if labels.iter().any(|l| l.accel == Some(Accel::Tcg)) {
        Some(
            "Software emulation: ratios carry over to hardware only with care, absolute figures not at all.",
        )
    } else {
        None
    }
}

/// Returns a warning if no comparison could show even the largest difference.
pub fn too_few_runs(summary: &Summary) -> Option<String> {
    let all = &summary.comparisons;
    let none = !all.is_empty() && all.iter().all(|it| it.verdict == Verdict::TooFewRuns);
    let n = summary.cells.iter().map(|c| c.n).max().filter(|_| none)?;
    let comparisons = plural(family::counted(all).count() as u64, "comparison", "comparisons");
    Some(format!(
        "Too few runs: with n = {n} and {comparisons}, no difference can be shown, however large."
    ))
}

/// The results of all comparisons of one question, by place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Subject and baseline, such as `The oracle against stock`.
    pub lead: String,
    /// Each place with its result: `at 2:1` and `better on 6 of 10 workloads`.
    pub places: Vec<(String, String)>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.places.iter().map(|(at, text)| format!("{at} {text}")).collect();
        write!(f, "{}: {}.", self.lead, texts.join("; "))
    }
}

/// Returns the findings: what a topology costs, how much of that the oracle regains, and what
/// schedulers and kernels change.
pub fn findings(summary: &Summary) -> Vec<Finding> {
    let mut groups: Vec<(String, Vec<(&str, &Comparison)>)> = Vec::new();
    let workloads = view::workloads(summary);
    for kind in view::KINDS {
        for (place, comparison) in view::told(&workloads, kind) {
            let lead = lead(comparison);
            match groups.iter_mut().find(|(text, _)| *text == lead) {
                Some((_, members)) => members.push((place, comparison)),
                None => groups.push((lead, vec![(place, comparison)])),
            }
        }
    }
    groups.into_iter().map(|(lead, members)| finding(lead, &members)).collect()
}

fn lead(comparison: &Comparison) -> String {
    let against = view::against(comparison);
    let scheduler = &comparison.subject.scheduler;
    match comparison.kind {
        ComparisonKind::Oracle => format!("The oracle against {against}"),
        ComparisonKind::Kernel => {
            format!("{}, {scheduler}, against {against}", view::kernel_name(&comparison.subject))
        }
        _ => format!("{scheduler} against {against}"),
    }
}

fn finding(lead: String, members: &[(&str, &Comparison)]) -> Finding {
    let mut places: Vec<&str> = Vec::new();
    for (place, _) in members {
        if !places.contains(place) {
            places.push(place);
        }
    }
    let text = |place: &str| {
        let here: Vec<_> = members.iter().filter(|(at, _)| *at == place).map(|(_, c)| *c).collect();
        (format!("at {place}"), verdicts(&here))
    };
    Finding { lead, places: places.into_iter().map(text).collect() }
}

fn verdicts(members: &[&Comparison]) -> String {
    let parts: Vec<String> =
        [Verdict::Better, Verdict::Worse, Verdict::NoDifferenceShown, Verdict::TooFewRuns]
            .into_iter()
            .filter_map(|verdict| part(verdict, members))
            .collect();
    parts.join(", ")
}

fn part(verdict: Verdict, members: &[&Comparison]) -> Option<String> {
    let with: Vec<_> = members.iter().filter(|c| c.verdict == verdict).collect();
    if with.is_empty() {
        return None;
    }
    let words = match members {
        [_] => format::verdict(verdict).to_string(),
        _ => format!("{} on {} of {}", format::verdict(verdict), with.len(), members.len()),
    };
    let extreme = match verdict {
        Verdict::NoDifferenceShown | Verdict::TooFewRuns => None,
        Verdict::Better => with.iter().max_by(|a, b| size(a).total_cmp(&size(b))),
        Verdict::Worse => with.iter().min_by(|a, b| size(a).total_cmp(&size(b))),
    };
    let extreme = extreme.map(|c| {
        let most = if with.len() > 1 { "most: " } else { "" };
        format!(" ({most}{}, {})", c.subject.workload, view::ratio_text(c))
    });
    Some(words + &extreme.unwrap_or_default())
}

fn size(comparison: &Comparison) -> f64 {
    comparison.ratio.map_or(f64::INFINITY, |r| r.value)
}

/// Returns a sentence on failed attempts and retries; `None` if there were none.
pub fn failures(summary: &Summary) -> Option<String> {
    if summary.failures.is_empty() && summary.retries == 0 {
        return None;
    }
    let kinds: Vec<_> =
        summary.failures.iter().map(|(kind, n)| format!("{} {n}", failure_name(*kind))).collect();
    let total: u64 = summary.failures.values().sum();
    let list = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    Some(format!(
        "{} failed{list}; {}.",
        plural(total, "attempt", "attempts"),
        plural(summary.retries, "retry", "retries")
    ))
}

/// Returns the failure's name in files, such as `int3-oops`.
pub fn failure_name(kind: unspin_model::FailureKind) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(name)) => name,
        _ => format!("{kind:?}"),
    }
}
