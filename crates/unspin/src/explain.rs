//! `unspin explain`.

use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use unspin_report::explain::{Explanation, Topic, list, text};

use crate::{out, screen};

/// Where the output is not a terminal.
const COLUMNS: usize = 80;
/// Longer lines are hard to read.
const COLUMNS_MAX: usize = 100;

/// Explain a cause of lost time: meaning, evidence, remedy
///
/// `watch`, `report` and `trace` name these causes. Without CAUSE, it lists them.
#[derive(clap::Args)]
pub struct Args {
    /// The cause
    #[arg(value_name = "CAUSE", value_parser = topics())]
    topic: Option<Topic>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let columns = screen::columns().unwrap_or(COLUMNS).min(COLUMNS_MAX);
    match (args.topic, args.json) {
        (None, true) => {
            let all: Vec<Explanation> = Topic::all().map(Topic::explanation).collect();
            out::json_list(1, "causes", &all)?;
        }
        (None, false) => out::text(list(columns))?,
        (Some(topic), true) => out::json(1, None, &topic.explanation())?,
        (Some(topic), false) => out::text(text(&topic.explanation(), columns))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Their names, which completions know, too.
fn topics() -> impl TypedValueParser<Value = Topic> {
    let values = Topic::all().map(|topic| {
        let words = topic.explanation();
        PossibleValue::new(words.name).aliases(words.also).help(words.brief)
    });
    let known = |name: String| Topic::of(&name).ok_or("no such cause");
    PossibleValuesParser::new(values.collect::<Vec<_>>()).try_map(known)
}
