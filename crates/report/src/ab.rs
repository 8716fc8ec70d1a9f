//! The verdict on the rounds of `unspin run --ab`, and its text: is `unspin run` worth it for the
//! user's work?

use serde::Serialize;
use unspin_model::ab::{Arm, Rounds, Source};
use unspin_model::summary::Estimate;
use unspin_stats::ab::{Decision, PAIRS_MIN, decide, pairs_to_show};
use unspin_stats::{Bootstrap, Verdict, median};

use crate::columns::{paragraph, printable, table};
use crate::format::{has_interval, number, p_value, plural, ratio_number};
use unspin_analysis::summarize::estimate::{of_ratio, of_values};

/// Effects that may be worth more pairs. The text names the first one that few enough pairs would
/// show.
const EFFECTS: [f64; 4] = [0.05, 0.1, 0.2, 0.5];
/// Maximum number of pairs that the text advises: nobody runs more.
const PAIRS_MAX: u32 = 100;
/// Up to this number, the text gives exact numbers of pairs; above it, multiples of five.
const PAIRS_EXACT: u32 = 12;
const COLUMNS: usize = 79;

/// Kind of the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The work is faster under unspin.
    LeaveOn,
    /// The work is slower under unspin.
    LeaveOff,
    /// Neither is shown.
    NoDifferenceShown,
    /// Too few pairs are complete to show anything.
    TooFew,
}

/// Number of pairs that would show an effect in about 80 % of trials.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Enough {
    /// The effect: 0.05 is 5 % more or less speed.
    pub effect: f64,
    /// Number of pairs.
    pub pairs: u32,
}

/// The verdict on rounds: the format of `unspin run --ab --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// Kind of the verdict.
    pub kind: Kind,
    /// The verdict in a sentence.
    pub sentence: String,
    /// Number of complete pairs, on which the verdict rests.
    pub complete: u32,
    /// Median of the metric under the kernel's own scheduler, with its interval.
    pub stock: Option<Estimate>,
    /// Median of the metric under unspin, with its interval.
    pub unspin: Option<Estimate>,
    /// Median of the pairs' ratios of speed, unspin to stock. Above 1, unspin is faster.
    pub ratio: Option<Estimate>,
    /// p of the exchange of rounds within pairs; absent if the pairs are too few.
    pub p: Option<f64>,
    /// Number of pairs that would show a small effect; present only if no difference is shown.
    pub enough: Option<Enough>,
    /// All rounds.
    #[serde(flatten)]
    pub rounds: Rounds,
}

impl Judged {
    /// Judges rounds.
    pub fn of(rounds: Rounds) -> Judged {
        let (metric, seed) = (&rounds.metric, rounds.seed);
        let speed = |value| metric.speed(Some(value));
        let complete = rounds.complete();
        let pairs: Vec<(f64, f64)> = complete
            .iter()
            .map(|(unspin, stock)| (speed(unspin.value), speed(stock.value)))
            .collect();
        let side = |speeds: Vec<f64>| {
            of_values(metric, Bootstrap::seeded(seed).median(&speeds)?, speeds.len())
        };
        let of_pairs = |ratio| of_ratio(ratio, pairs.len());
        let decision = decide(&pairs, seed);
        let kind = kind(decision.as_ref());
        let enough = (kind == Kind::NoDifferenceShown).then(|| enough(&pairs)).flatten();
        let mut judged = Judged {
            kind,
            sentence: String::new(),
            complete: pairs.len() as u32,
            stock: side(pairs.iter().map(|pair| pair.1).collect()),
            unspin: side(pairs.iter().map(|pair| pair.0).collect()),
            ratio: decision.and_then(|decision| of_pairs(decision.difference.ratio?)),
            p: decision.map(|decision| decision.difference.p),
            enough,
            rounds,
        };
        judged.sentence = judged.sentence();
        judged
    }

    fn sentence(&self) -> String {
        let after = plural(self.complete.into(), "pair", "pairs");
        let speed = || match &self.ratio {
            Some(ratio) => format!("{}x the speed", ratio_number(ratio.value)),
            None => "stock got nothing done in half of its rounds".into(),
        };
        let p = p_text(self.p.unwrap_or(1.0));
        let sentence = match self.kind {
            Kind::LeaveOn => {
                let with = self.rounds.needs.as_ref();
                let with = with.map_or(String::new(), |option| format!(" with {option}"));
                format!("Leave it on{with}: {} in {after} (p {p}).", speed())
            }
            Kind::LeaveOff => format!("Leave it off: {} in {after} (p {p}).", speed()),
            Kind::NoDifferenceShown => {
                format!("No difference shown after {after}{}", self.advice())
            }
            Kind::TooFew => {
                format!("Too few pairs to judge: {} complete, {PAIRS_MIN} needed.", self.complete)
            }
        };
        printable(&sentence)
    }

    fn advice(&self) -> String {
        match self.enough {
            None => ", which vary too much to show even 50 %.".into(),
            Some(Enough { effect, pairs }) if pairs <= self.complete => {
                format!(", which are enough to show {:.0} %.", 100.0 * effect)
            }
            Some(Enough { effect, pairs }) => {
                format!("; about {pairs} would show {:.0} %.", 100.0 * effect)
            }
        }
    }

    /// Returns a table and the sentence, for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if self.complete > 0 {
            text += &self.table();
            text.push('\n');
        }
        text += &paragraph(&self.sentence, COLUMNS);
        text.push('\n');
        if self.rounds.source == Source::Guest {
            text += &paragraph(PROXY, COLUMNS);
            text.push('\n');
        }
        text
    }

    fn table(&self) -> String {
        let metric = &self.rounds.metric;
        let unit =
            if metric.unit.is_empty() { String::new() } else { format!(", {}", metric.unit) };
        let name = format!("{}{unit}", metric.name);
        let head = ["", name.as_str(), "95 %", "switches/s"];
        let has_switches = self.switches(Arm::Stock).is_some();
        let columns = if has_switches { 4 } else { 3 };
        let side = |name: &str, side: Option<&Estimate>, arm| {
            let figure = side.map_or("-".into(), |side| number(side.value));
            let range = side.map_or(String::new(), |side| range(side, number));
            let switches = self.switches(arm).map_or(String::new(), number);
            vec![name.to_owned(), figure, range, switches]
        };
        let mut rows = vec![
            side("stock", self.stock.as_ref(), Arm::Stock),
            side("unspin", self.unspin.as_ref(), Arm::Unspin),
        ];
        rows.extend(self.ratio.as_ref().map(|ratio| {
            let range = range(ratio, ratio_number);
            vec!["speed".into(), format!("{}x", ratio_number(ratio.value)), range, String::new()]
        }));
        rows.iter_mut().for_each(|row| row.truncate(columns));
        table(&head[..columns], &[], rows)
    }

    fn switches(&self, arm: Arm) -> Option<f64> {
        let of_arm = self.rounds.rounds.iter().filter(|round| round.arm == arm);
        median(&of_arm.filter_map(|round| round.figure.switches_per_s).collect::<Vec<_>>())
    }
}

/// Returns the ends of an interval, if the estimate has one.
fn range(estimate: &Estimate, text: impl Fn(f64) -> String) -> String {
    match has_interval(estimate) {
        true => format!("{} to {}", text(estimate.lo), text(estimate.hi)),
        false => String::new(),
    }
}

/// Caution about what the guest's own figure does not show.
const PROXY: &str = "Mind: this compares CPU time that was neither idle, off nor spinning, which \
    is a proxy. Whether it was your work is unknown: use -- CMD or --metric-cmd to know.";

fn kind(decision: Option<&Decision>) -> Kind {
    match decision.map(|decision| decision.verdict) {
        None => Kind::TooFew,
        Some(Verdict::Better) => Kind::LeaveOn,
        Some(Verdict::Worse) => Kind::LeaveOff,
        Some(Verdict::NoDifferenceShown) => Kind::NoDifferenceShown,
    }
}

fn enough(pairs: &[(f64, f64)]) -> Option<Enough> {
    let of = |effect| {
        let needed = pairs_to_show(effect, pairs)?;
        let pairs = if needed > PAIRS_EXACT { needed.next_multiple_of(5) } else { needed };
        Some(Enough { effect, pairs })
    };
    EFFECTS.into_iter().filter_map(of).find(|enough| enough.pairs <= PAIRS_MAX)
}

fn p_text(p: f64) -> String {
    let text = p_value(p);
    if text.starts_with('<') { text } else { format!("= {text}") }
}
