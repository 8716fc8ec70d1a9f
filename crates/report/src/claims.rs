//! Claims as tables, and the tables of claims within the README and the docs.

use unspin_model::Claim;
use unspin_model::claim::Target;

use crate::columns::{self, Align};
use crate::{format, markdown};

pub mod blocks;
pub mod distribution;
pub mod plot;

pub use blocks::{BlockError, render_blocks};

/// Maximum number of additional digits that show on which side of the target a figure lies.
const MORE_DIGITS_MAX: u8 = 5;

/// Returns the claims as a GitHub Markdown table. A label that all of them share becomes its
/// caption.
pub fn markdown(claims: &[&Claim]) -> String {
    let shared = claims.first().map(|claim| &claim.label);
    let shared = shared.filter(|label| claims.iter().all(|claim| claim.label == **label));
    let mut titles = vec!["claim", "figure [95 % interval]", "n", "target", "result"];
    if shared.is_none() {
        titles.push("label");
    }
    let row = |claim: &&Claim| {
        let mut row = vec![
            claim.what.clone(),
            figure(claim),
            claim.n.to_string(),
            claim.target.clone(),
            result(claim),
        ];
        if shared.is_none() {
            row.push(claim.label.clone());
        }
        row
    };
    let titles: Vec<String> = titles.into_iter().map(String::from).collect();
    let table = markdown::grid(&titles, &claims.iter().map(row).collect::<Vec<_>>(), &[1, 2]);
    match shared.filter(|label| !label.is_empty()) {
        Some(label) => format!("Label: {}\n\n{table}", markdown::escape(label)),
        None => table,
    }
}

/// Returns pairs of claims, each with its name, as a GitHub Markdown table that shows whether two
/// labels agree.
fn beside(pairs: &[(String, Claim, Claim)]) -> String {
    let label = |of: fn(&(String, Claim, Claim)) -> &Claim| {
        let claims: Vec<&Claim> = pairs.iter().map(of).collect();
        // The label of a figure from several experiments names the label of each.
        let mut each: Vec<&str> = Vec::new();
        for label in labels(&claims).iter().flat_map(|label| label.split("; ")) {
            if !each.contains(&label) {
                each.push(label);
            }
        }
        each.join("; ")
    };
    let titles = [String::new(), label(|pair| &pair.1), label(|pair| &pair.2), "intervals".into()];
    let row = |(name, left, right): &(String, Claim, Claim)| {
        let overlap = match (left.lo, left.hi, right.lo, right.hi) {
            (Some(a), Some(b), Some(c), Some(d)) if a <= d && c <= b => "overlap",
            (Some(_), Some(_), Some(_), Some(_)) => "apart",
            _ => "–",
        };
        vec![name.clone(), figure(left), figure(right), overlap.into()]
    };
    markdown::grid(&titles, &pairs.iter().map(row).collect::<Vec<_>>(), &[1, 2])
}

/// Text that a table shows below each claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Why the claim misses its target.
    Reason,
    /// The claim's statement, and why it misses its target.
    What,
}

/// Returns the claims as a table for a terminal of `width` columns, with the label below the claims
/// that share it.
pub fn terminal(claims: &[&Claim], detail: Detail, width: usize) -> String {
    let titles = ["claim", "figure [interval]", "n", "target", "result"];
    let mut rows = vec![titles.map(String::from).to_vec()];
    for claim in claims {
        let word = word(claim.holds).to_owned();
        let cells =
            [claim.id.clone(), figure(claim), claim.n.to_string(), claim.target.clone(), word];
        rows.push(cells.map(|cell| columns::printable(&cell)).to_vec());
    }
    let excess = columns::line_width(&columns::widths(&rows)).saturating_sub(width);
    let keep = columns::widths(&rows)[0].saturating_sub(excess).max(12);
    rows.iter_mut().for_each(|row| row[0] = columns::cut(&row[0], keep));
    let widths = columns::widths(&rows);
    let align = [Align::Left, Align::Left, Align::Right, Align::Left, Align::Left];
    let mut out = columns::line(&rows[0], &widths, &align) + "\n";
    for label in labels(claims) {
        let caption = if label.is_empty() { "no label" } else { label };
        out += &format!("\n{}\n", columns::paragraph(&format!("Label: {caption}"), width));
        for (claim, row) in claims.iter().zip(&rows[1..]).filter(|(it, _)| it.label == label) {
            out += &(columns::line(row, &widths, &align) + "\n");
            let what = if detail == Detail::What { claim.what.as_str() } else { "" };
            for text in [what, claim.reason.as_str()] {
                let text = columns::paragraph(text, width.saturating_sub(4));
                text.lines().for_each(|line| out += &format!("    {line}\n"));
            }
        }
    }
    out
}

/// Returns each label once, in the order of the claims.
fn labels<'a>(claims: &[&'a Claim]) -> Vec<&'a str> {
    let mut labels: Vec<&str> = Vec::new();
    for claim in claims {
        if !labels.contains(&claim.label.as_str()) {
            labels.push(&claim.label);
        }
    }
    labels
}

/// Returns the figure with its interval and unit; `unbounded` if it has no value. The figure has
/// enough digits to meet or miss its target as the exact figure does.
pub fn figure(claim: &Claim) -> String {
    let unbounded = if claim.unbounded_below { "unbounded below" } else { "unbounded" };
    let Some(value) = claim.value else { return unbounded.into() };
    let digits: fn(f64, u8) -> String = match claim.unit.as_str() {
        "x" => format::ratio_number_with,
        _ => format::number_with,
    };
    let more = more_digits(&claim.target, value, digits);
    let text = |value| digits(value, more);
    let unit = match claim.unit.as_str() {
        "x" => "x".into(),
        "" => String::new(),
        unit => format!(" {unit}"),
    };
    let interval = match (claim.lo, claim.hi) {
        (Some(lo), Some(hi)) => format!(" [{}, {}]", text(lo), text(hi)),
        (Some(lo), None) => format!(" [{}, ∞]", text(lo)),
        (None, Some(hi)) => format!(" [-∞, {}]", text(hi)),
        (None, None) => String::new(),
    };
    format!("{}{unit}{interval}", text(value))
}

/// Returns how many additional digits a value needs so that rounding does not move it across its
/// target.
fn more_digits(target: &str, value: f64, digits: fn(f64, u8) -> String) -> u8 {
    let Ok(target) = target.parse::<Target>() else { return 0 };
    let rounded = |more| format::parse(&digits(value, more)).unwrap_or(value);
    let agrees = |more: &u8| target.met_by(rounded(*more)) == target.met_by(value);
    (0..=MORE_DIGITS_MAX).find(agrees).unwrap_or(MORE_DIGITS_MAX)
}

/// Returns whether the target is met, with the reason if it is not.
fn result(claim: &Claim) -> String {
    match claim.reason.as_str() {
        "" => word(claim.holds).to_owned(),
        reason => format!("{}: {reason}", word(claim.holds)),
    }
}

/// Returns the word for a target that is met or missed; a claim without a target is neither.
pub fn word(holds: Option<bool>) -> &'static str {
    match holds {
        Some(true) => "met",
        Some(false) => "missed",
        None => "–",
    }
}
