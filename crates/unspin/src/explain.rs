//! `unspin explain`.

use std::ffi::OsStr;
use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};
use unspin_report::explain::{Explanation, Topic, list, text};

use crate::{out, screen};

/// Columns if the output is not a terminal.
const COLUMNS: usize = 80;
/// Maximum columns, because longer lines are hard to read.
const COLUMNS_MAX: usize = 100;

/// Explain a cause of lost time: meaning, evidence, remedy
///
/// `watch`, `report` and `trace` name these causes. Without CAUSE, it lists them.
#[derive(clap::Args)]
pub struct Args {
    /// The cause, by its name or in the words of a verdict or table
    #[arg(value_name = "CAUSE", value_parser = Topics)]
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

/// Parses a cause in the words of any view. Shell completions offer the names.
#[derive(Clone)]
struct Topics;

impl TypedValueParser for Topics {
    type Value = Topic;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Topic, clap::Error> {
        if let Some(topic) = value.to_str().and_then(Topic::of) {
            return Ok(topic);
        }
        // This parser's error lists the valid names.
        let known = PossibleValuesParser::new(names()).parse_ref(command, arg, value)?;
        Topic::of(&known).ok_or_else(|| clap::Error::new(ErrorKind::InvalidValue))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(names()))
    }
}

fn names() -> impl Iterator<Item = PossibleValue> {
    Topic::all().map(|topic| {
        let words = topic.explanation();
        PossibleValue::new(words.name).aliases(words.also).help(words.brief)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_cause_goes_by_the_words_of_any_view() {
        for name in ["holder-off", "lhp", "the holder was off", "lock-holders-were-preempted"] {
            let parsed = crate::command().try_get_matches_from(["unspin", "explain", name]);
            assert!(parsed.is_ok(), "{name}");
        }
        let wrong = crate::command().try_get_matches_from(["unspin", "explain", "nothing"]);
        let text = wrong.expect_err("no such cause").to_string();
        assert!(text.contains("nothing") && text.contains("holder-off"), "{text}");
    }
}
