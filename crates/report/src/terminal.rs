//! The result table for a terminal.

use unspin_model::summary::{Summary, Verdict};

use crate::columns::{self, Align};
use crate::rows::{self, Row};
use crate::{format, headline, view};

/// Options of the table.
#[derive(Debug, Clone)]
pub struct Style {
    /// Maximum number of columns. Below 100, the medians lose their intervals; below about 80, long
    /// names are cut.
    pub width: usize,
    /// Whether to colour verdicts with ANSI escape sequences.
    pub colour: bool,
    /// Path of the full report, for the last line.
    pub report: Option<String>,
}

impl Default for Style {
    /// Returns the default: 100 columns without colour.
    fn default() -> Self {
        Style { width: 100, colour: false, report: None }
    }
}

const ALIGN: [Align; 6] =
    [Align::Left, Align::Left, Align::Left, Align::Left, Align::Left, Align::Right];
const INDENT: &str = "  ";
/// Minimum length to which names are cut.
const SHORTEST_NAME: usize = 8;

/// Returns the summary as text: what was measured, the findings, the table, the failures, and the
/// path of the report.
pub fn table(summary: &Summary, style: &Style) -> String {
    let mut out = String::new();
    let mut paragraph = |text: &str| {
        out += &columns::paragraph(text, style.width);
        out.push('\n');
    };
    paragraph(&headline::measured(summary));
    paragraph(&format!("Label: {}.", view::labels_text(&summary.labels)));
    headline::caution(summary).into_iter().for_each(&mut paragraph);
    out.push('\n');
    out += &body(summary, style);
    out.push('\n');
    for text in closing(summary, style) {
        out += &columns::paragraph(&text, style.width);
        out.push('\n');
    }
    out
}

fn closing(summary: &Summary, style: &Style) -> Vec<String> {
    let mut out = vec![
        "Ratios are of speed: above 1x is more work in the same time. [low, high] is a 95\u{202f}% \
         interval."
            .to_string(),
    ];
    out.extend(headline::findings(summary).iter().map(ToString::to_string));
    out.extend(headline::too_few_runs(summary));
    out.extend(headline::failures(summary));
    out.extend(style.report.as_ref().map(|path| format!("Report: {path}")));
    out
}

/// A line of the table.
struct Line {
    /// Cells of the line, by column.
    cells: Vec<String>,
    verdict: Option<Verdict>,
    /// Text below the line, outside of the columns; often empty.
    note: String,
}

fn body(summary: &Summary, style: &Style) -> String {
    let groups: Vec<_> = view::workloads(summary)
        .iter()
        .map(|w| (heading(w), rows::of_workload(w, &summary.experiment)))
        .collect();
    let room = style.width.saturating_sub(INDENT.len());
    let mut lines = layout(&groups, true);
    if columns::line_width(&widths(&lines)) > room {
        lines = layout(&groups, false);
    }
    cut_names(&mut lines, room);
    print(&groups, &lines, style)
}

fn heading(workload: &view::Workload<'_>) -> String {
    columns::printable(&format!("{}: {}", workload.name, view::metric_text(workload.metric)))
}

/// Returns all lines of all groups; the first group contains the column titles.
fn layout(groups: &[(String, Vec<Row>)], with_interval: bool) -> Vec<Vec<Line>> {
    let median = if with_interval { "median [interval]" } else { "median" };
    let titles = ["where", "scheduler", median, "ratio [interval]", "verdict", "n"];
    let titles =
        Line { cells: titles.map(String::from).to_vec(), verdict: None, note: String::new() };
    let mut out = vec![vec![titles]];
    for (_, rows) in groups {
        out.push(rows.iter().map(|row| line(row, with_interval)).collect());
    }
    out
}

fn line(row: &Row, with_interval: bool) -> Line {
    let median = match (&row.median, with_interval) {
        (Some(median), true) => format::estimate(median),
        (Some(median), false) => format::number(median.value),
        (None, _) if row.n.is_some() => "none".into(),
        (None, _) => String::new(),
    };
    let n = row.n.map(|n| n.to_string()).unwrap_or_default();
    let texts = [&row.place, &row.scheduler, &median, &row.ratio, &row.verdict_text, &n];
    Line {
        cells: texts.map(|text| columns::printable(text)).to_vec(),
        verdict: row.verdict,
        note: row.note.clone(),
    }
}

fn widths(lines: &[Vec<Line>]) -> Vec<usize> {
    let cells: Vec<_> = lines.iter().flatten().map(|line| line.cells.clone()).collect();
    columns::widths(&cells)
}

/// Cuts the names of places, then of schedulers, as far as needed.
fn cut_names(lines: &mut [Vec<Line>], room: usize) {
    for column in [0, 1] {
        let widths = widths(lines);
        let excess = columns::line_width(&widths).saturating_sub(room);
        let keep = widths[column].saturating_sub(excess).max(SHORTEST_NAME);
        for line in lines.iter_mut().flatten() {
            line.cells[column] = columns::cut(&line.cells[column], keep);
        }
    }
}

fn print(groups: &[(String, Vec<Row>)], lines: &[Vec<Line>], style: &Style) -> String {
    let widths = widths(lines);
    let text = |line: &Line| format!("{INDENT}{}", columns::line(&line.cells, &widths, &ALIGN));
    // Notes start a little to the right of the schedulers' names.
    let note_indent = " ".repeat(INDENT.len() + columns::line_width(&widths[..1]) + 4);
    let mut out = paint(&text(&lines[0][0]), "2", style) + "\n";
    for ((heading, _), lines) in groups.iter().zip(&lines[1..]) {
        out += &paint(&columns::cut(heading, style.width), "1", style);
        out.push('\n');
        for line in lines {
            out += &colour_end(&text(line), &line.cells[4], line.verdict, style);
            out.push('\n');
            if !line.note.is_empty() {
                out += &format!("{note_indent}{}\n", paint(&line.note, "33", style));
            }
        }
    }
    out
}

/// Colours the words of the verdict within a line.
fn colour_end(line: &str, words: &str, verdict: Option<Verdict>, style: &Style) -> String {
    let code = match verdict {
        Some(Verdict::Better) => "32",
        Some(Verdict::Worse) => "31",
        Some(Verdict::NoDifferenceShown | Verdict::TooFewRuns) => "2",
        None => return line.into(),
    };
    match line.rfind(words) {
        Some(at) if !words.is_empty() => {
            let (before, rest) = line.split_at(at);
            format!("{before}{}{}", paint(words, code, style), &rest[words.len()..])
        }
        _ => line.into(),
    }
}

fn paint(text: &str, code: &str, style: &Style) -> String {
    if style.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.into() }
}
