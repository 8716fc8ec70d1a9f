//! Claims as tables, and the tables of claims within README and docs.

use unspin_model::Claim;

use crate::columns::{self, Align};
use crate::{format, markdown};

pub mod blocks;
pub mod plot;

pub use blocks::{BlockError, render_blocks};

/// The claims as a GitHub Markdown table.
pub fn markdown(claims: &[&Claim]) -> String {
    let titles = ["claim", "figure [95 % interval]", "n", "target", "holds", "label"];
    let rows: Vec<_> = claims
        .iter()
        .map(|claim| {
            [
                claim.what.clone(),
                figure(claim),
                claim.n.to_string(),
                claim.target.clone(),
                holds(claim),
                claim.label.clone(),
            ]
        })
        .collect();
    markdown::grid(&titles.map(String::from), &rows, &[1, 2])
}

/// The claims as a table for a terminal of `width` columns.
pub fn terminal(claims: &[&Claim], width: usize) -> String {
    let mut rows =
        vec![["claim", "figure [interval]", "n", "target", "holds"].map(String::from).to_vec()];
    for claim in claims {
        let holds = if claim.holds { "yes" } else { "no" }.to_string();
        let cells =
            [claim.id.clone(), figure(claim), claim.n.to_string(), claim.target.clone(), holds];
        rows.push(cells.map(|cell| columns::printable(&cell)).to_vec());
    }
    let excess = columns::line_width(&columns::widths(&rows)).saturating_sub(width);
    let keep = columns::widths(&rows)[0].saturating_sub(excess).max(12);
    rows.iter_mut().for_each(|row| row[0] = columns::cut(&row[0], keep));
    let widths = columns::widths(&rows);
    let align = [Align::Left, Align::Left, Align::Right, Align::Left, Align::Left];
    let mut out = String::new();
    let reasons = std::iter::once(None).chain(claims.iter().map(|c| Some(c.reason.as_str())));
    for (row, reason) in rows.iter().zip(reasons) {
        out += &(columns::line(row, &widths, &align) + "\n");
        if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
            let text = columns::paragraph(reason, width.saturating_sub(4));
            text.lines().for_each(|line| out += &format!("    {line}\n"));
        }
    }
    out
}

/// The figure with its interval and unit; `unbounded` where it has no value.
pub fn figure(claim: &Claim) -> String {
    let Some(value) = claim.value else { return "unbounded".into() };
    let is_ratio = claim.unit == "x";
    let text = |v| if is_ratio { format::ratio_number(v) } else { format::number(v) };
    let unit = match claim.unit.as_str() {
        "x" => "x".into(),
        "" => String::new(),
        unit => format!(" {unit}"),
    };
    let interval = match (claim.lo, claim.hi) {
        (Some(lo), Some(hi)) => format!(" [{}, {}]", text(lo), text(hi)),
        (Some(lo), None) => format!(" [{}, ∞]", text(lo)),
        _ => String::new(),
    };
    format!("{}{unit}{interval}", text(value))
}

fn holds(claim: &Claim) -> String {
    match (claim.holds, claim.reason.as_str()) {
        (true, _) => "yes".into(),
        (false, "") => "no".into(),
        (false, reason) => format!("no: {reason}"),
    }
}
