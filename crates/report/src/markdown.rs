//! The result table as GitHub Markdown.

use unspin_model::summary::Summary;

use crate::rows::{self, Row};
use crate::{format, headline, view};

/// Returns the summary as a Markdown document without a heading: sentences, then one table for each
/// workload, then the failures.
pub fn document(summary: &Summary) -> String {
    let mut out = format!("{}\n\n", escape(&headline::measured(summary)));
    out += &format!("Label: **{}**.", escape(&view::labels_text(&summary.labels)));
    if let Some(caution) = headline::caution(summary) {
        out += &format!(" {caution}");
    }
    out += "\n\n";
    for finding in headline::findings(summary) {
        out += &format!("- {}\n", escape(&finding.to_string()));
    }
    if let Some(warning) = headline::too_few_runs(summary) {
        out += &format!("- {warning}\n");
    }
    for workload in view::workloads(summary) {
        out += &format!(
            "\n**{}**: {}\n\n",
            escape(workload.name),
            escape(&view::metric_text(workload.metric))
        );
        out += &table(&rows::of_workload(&workload, &summary.experiment));
    }
    out += "\nRatios are of speed: above 1x is more work in the same time. [low, high] is a 95\u{202f}% interval.\n";
    if let Some(failures) = headline::failures(summary) {
        out += &format!("{}\n", escape(&failures));
    }
    out
}

fn table(rows: &[Row]) -> String {
    let titles = ["where", "scheduler", "median", "ratio", "verdict", "n"].map(String::from);
    let cells: Vec<_> = rows.iter().map(cells).collect();
    grid(&titles, &cells, &[2, 3, 5])
}

fn cells(row: &Row) -> [String; 6] {
    let median = row.median.as_ref().map(format::estimate).unwrap_or_default();
    let parts: Vec<_> = [median, row.note.clone()].into_iter().filter(|p| !p.is_empty()).collect();
    [
        row.place.clone(),
        row.scheduler.clone(),
        parts.join(", "),
        row.ratio.clone(),
        row.verdict_text.clone(),
        row.n.map(|n| n.to_string()).unwrap_or_default(),
    ]
}

/// Returns a Markdown table with escaped cells; `right` lists the columns of figures.
pub(crate) fn grid<R: AsRef<[String]>>(titles: &[String], rows: &[R], right: &[usize]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<_> = cells.iter().map(|cell| escape(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: Vec<_> = (0..titles.len())
        .map(|column| if right.contains(&column) { "---:" } else { "---" })
        .collect();
    let mut out = line(titles) + &format!("| {} |\n", rule.join(" | "));
    rows.iter().for_each(|row| out += &line(row.as_ref()));
    out
}

/// Escapes text so that Markdown shows it unchanged, on one line. Escapes only what could be
/// markup, so that the source stays readable.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::new();
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let after = chars.peek().copied().unwrap_or(' ');
        match c {
            '\\' | '`' | '*' | '|' | '~' => out.extend(['\\', c]),
            // Within a word, an underscore does not start emphasis.
            '_' if before.is_alphanumeric() && after.is_alphanumeric() => out.push(c),
            '_' => out += "\\_",
            // `](`, `][` and `]:` make links; an interval's bracket stays as it is.
            ']' if matches!(after, '(' | '[' | ':') => out += "\\]",
            '<' if after != ' ' && after != '=' => out += "&lt;",
            '>' if out.is_empty() => out += "&gt;",
            '&' => out += "&amp;",
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
        before = c;
    }
    out
}
