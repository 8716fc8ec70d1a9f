//! The comparison as a table for a terminal.

use unspin_model::Cell;
use unspin_model::summary::Verdict;

use crate::columns::{self, Align};
use crate::format;
use unspin_analysis::compare::{CellChange, CompareReport};

/// Returns the comparison as text of `width` columns.
pub fn terminal(report: &CompareReport, width: usize) -> String {
    let mut out = String::new();
    let mut paragraph = |text: &str| {
        out += &columns::paragraph(text, width);
        out.push('\n');
    };
    for warning in &report.warnings {
        paragraph(&format!("warning: {warning}"));
    }
    if !report.cells.is_empty() {
        paragraph(&closing(report));
    }
    out += &table(report, width);
    for (name, cells) in [("A", &report.only_in_a), ("B", &report.only_in_b)] {
        if !cells.is_empty() {
            let names: Vec<_> = cells.iter().map(Cell::to_string).collect();
            let text = format!("Only in {name}: {}.", names.join("; "));
            out += &(columns::paragraph(&text, width) + "\n");
        }
    }
    out
}

fn closing(report: &CompareReport) -> String {
    let count = |verdict| report.cells.iter().filter(|c| c.verdict == verdict).count();
    let too_few = match count(Verdict::TooFewRuns) {
        0 => String::new(),
        cells => format!(", too few runs in {cells}"),
    };
    format!(
        "B against A, {}: better in {}, worse in {}, no difference shown in {}{too_few}. Ratios \
         are of speed: above 1x B does more work in the same time.",
        format::plural(report.cells.len() as u64, "cell", "cells"),
        count(Verdict::Better),
        count(Verdict::Worse),
        count(Verdict::NoDifferenceShown)
    )
}

fn table(report: &CompareReport, width: usize) -> String {
    if report.cells.is_empty() {
        return "A and B have no cell in common.\n".into();
    }
    let titles = ["cell", "A", "B", "B/A [interval]", "verdict", "n"];
    let mut rows = vec![titles.map(String::from).to_vec()];
    rows.extend(report.cells.iter().map(|cell| cells(cell, one_kernel(report))));
    let excess = columns::line_width(&columns::widths(&rows)).saturating_sub(width);
    let keep = columns::widths(&rows)[0].saturating_sub(excess).max(12);
    for (row, change) in rows.iter_mut().skip(1).zip(&report.cells) {
        row[0] = shortened(&row[0], &change.cell.workload, keep);
    }
    let widths = columns::widths(&rows);
    let align = [Align::Left, Align::Right, Align::Right, Align::Left, Align::Left, Align::Right];
    rows.iter().map(|row| columns::line(row, &widths, &align) + "\n").collect()
}

/// Returns a cell's name cut to a number of columns: the workload's name is cut first.
fn shortened(name: &str, workload: &str, columns: usize) -> String {
    let rest = name.strip_prefix(workload).unwrap_or_default();
    let left = columns.saturating_sub(columns::width(rest)).max(2);
    columns::cut(&format!("{}{rest}", columns::cut(workload, left)), columns)
}

/// Returns whether all cells share kernel and boot parameters, which then need not be shown.
fn one_kernel(report: &CompareReport) -> bool {
    let kernel = |c: &CellChange| (c.cell.kernel.clone(), c.cell.boot_params.clone());
    report.cells.windows(2).all(|pair| kernel(&pair[0]) == kernel(&pair[1]))
}

fn cells(change: &CellChange, short: bool) -> Vec<String> {
    let cell = &change.cell;
    let name = match short {
        true => format!("{} {} {}", cell.workload, cell.topology, cell.scheduler),
        false => cell.to_string(),
    };
    let median = |estimate: &Option<_>| match estimate {
        Some(estimate) => {
            let estimate: &unspin_model::summary::Estimate = estimate;
            format!("{} {}", format::number(estimate.value), change.metric.unit)
        }
        None => "did not finish".into(),
    };
    let ratio = change.ratio.as_ref().map_or("A did not finish".into(), format::ratio);
    let n = match (change.n_a, change.n_b) {
        (a, b) if a == b => a.to_string(),
        (a, b) => format!("{a}, {b}"),
    };
    let verdict = format::verdict(change.verdict).to_string();
    [name, median(&change.a), median(&change.b), ratio, verdict, n]
        .map(|text| columns::printable(text.trim_end()))
        .to_vec()
}
