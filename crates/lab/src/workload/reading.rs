//! Reads a workload's result from its output.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;
use unspin_model::Lengths;

/// The figures that a workload measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// The metric's value, in the metric's unit.
    pub value: f64,
    /// More figures, by name. The name ends in the unit.
    pub co_metrics: BTreeMap<String, f64>,
    /// Latencies by name. The name ends in the unit.
    pub latencies: BTreeMap<String, Lengths>,
    /// Names of co-metrics that the output does not contain.
    pub missing: Vec<String>,
}

/// The beginning of the last line of an output that the guest's init has cut.
const CUT: &str = "unspin init: the output is cut after ";

/// Why a result could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The output is longer than the part of it that a guest keeps.
    #[error("the output is cut, and latencies are missing: print fewer lines")]
    Cut,
    /// The regex does not match.
    #[error("no match of the regex `{regex}` in the output, which ends: {tail}")]
    NoMatch {
        /// The regex that does not match.
        regex: String,
        /// Last lines of the output.
        tail: String,
    },
    /// The output contains no JSON object.
    #[error("no JSON object in the output ({reason}), which ends: {tail}")]
    NotJson {
        /// The parser's reason.
        reason: String,
        /// Last lines of the output.
        tail: String,
    },
    /// The JSON output has no number at the pointer.
    #[error("the JSON output has no number at `{pointer}`")]
    NoPointer {
        /// The JSON pointer.
        pointer: String,
    },
    /// The text at the place is not a finite number.
    #[error("`{text}` is not a number (found by `{by}`)")]
    NotANumber {
        /// The text that was found.
        text: String,
        /// The regex or pointer that found it.
        by: String,
    },
}

/// The place of the number in the output.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// The first group that took part in the first match.
    Regex(Regex),
    /// A JSON pointer (RFC 6901) into the first JSON object of the output.
    Json(String),
    /// Not in the output: the number is the command's running time in seconds.
    Elapsed,
}

/// Reader of one number.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    /// Place of the number.
    pub place: Place,
    /// Factor that converts the number to the metric's unit.
    pub scale: f64,
}

impl Reader {
    /// Describes the place of the number and its scale.
    pub(super) fn describe(&self) -> String {
        let place = match &self.place {
            Place::Regex(regex) => format!("regex {regex}"),
            Place::Json(pointer) => format!("json {pointer}"),
            Place::Elapsed => "elapsed".to_owned(),
        };
        format!("{place} x {}", self.scale)
    }

    pub(super) fn read(&self, stdout: &str, elapsed_s: f64) -> Result<f64, ReadError> {
        let value = match &self.place {
            Place::Regex(regex) => by_regex(regex, stdout)?,
            Place::Json(pointer) => by_pointer(pointer, stdout)?,
            Place::Elapsed => elapsed_s,
        };
        match value * self.scale {
            scaled if scaled.is_finite() => Ok(scaled),
            // JSON has no infinity or NaN, so this run's record could not be read back.
            scaled => Err(ReadError::NotANumber { text: scaled.to_string(), by: self.describe() }),
        }
    }
}

fn by_regex(regex: &Regex, stdout: &str) -> Result<f64, ReadError> {
    let text = regex
        .captures(stdout)
        .and_then(|captures| captures.iter().skip(1).flatten().next())
        .ok_or_else(|| ReadError::NoMatch { regex: regex.to_string(), tail: tail(stdout) })?
        .as_str();
    number(text, regex.as_str())
}

/// Returns whether the guest kept only the beginning of an output.
pub(super) fn is_cut(stdout: &str) -> bool {
    stdout.lines().next_back().is_some_and(|line| line.starts_with(CUT))
}

/// Returns all numbers that the regex's first group matches.
pub(super) fn every_match(regex: &Regex, stdout: &str) -> Result<Vec<f64>, ReadError> {
    let texts = regex.captures_iter(stdout).filter_map(|captures| captures.get(1));
    texts.map(|text| number(text.as_str(), regex.as_str())).collect()
}

fn by_pointer(pointer: &str, stdout: &str) -> Result<f64, ReadError> {
    let json =
        first_object(stdout).map_err(|reason| ReadError::NotJson { reason, tail: tail(stdout) })?;
    match json.pointer(pointer) {
        Some(Value::Number(n)) => number(&n.to_string(), pointer),
        Some(Value::String(text)) => number(text, pointer),
        _ => Err(ReadError::NoPointer { pointer: pointer.into() }),
    }
}

/// Returns the first JSON object that starts at the beginning of a line. Programs print warnings
/// before it, and scripts print more text after it.
fn first_object(stdout: &str) -> Result<Value, String> {
    let start = if stdout.starts_with('{') { Some(0) } else { stdout.find("\n{").map(|at| at + 1) };
    let start = start.ok_or("no line starts with `{`")?;
    match serde_json::Deserializer::from_str(&stdout[start..]).into_iter().next() {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("empty".into()),
    }
}

fn number(text: &str, by: &str) -> Result<f64, ReadError> {
    match text.trim().parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(ReadError::NotANumber { text: text.into(), by: by.into() }),
    }
}

fn tail(stdout: &str) -> String {
    let lines: Vec<&str> = stdout.lines().filter(|line| !line.trim().is_empty()).collect();
    match lines.len() {
        0 => "(it is empty)".into(),
        n => lines[n.saturating_sub(3)..].join(" | "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regex(pattern: &str) -> Reader {
        Reader { place: Place::Regex(Regex::new(pattern).unwrap()), scale: 1.0 }
    }

    fn json(pointer: &str) -> Reader {
        Reader { place: Place::Json(pointer.into()), scale: 1.0 }
    }

    #[test]
    fn the_first_group_that_took_part_counts() {
        let reader = regex(r"old: (\S+)|new: (\S+)");
        assert_eq!(reader.read("old: 1.5", 0.0).unwrap(), 1.5);
        assert_eq!(reader.read("x\nnew: 2e3\n", 0.0).unwrap(), 2000.0);
    }

    #[test]
    fn missing_and_malformed_numbers_say_what_was_there() {
        let reader = regex(r"Time: (\S+)");
        let message = reader.read("a\nout of memory\n", 0.0).unwrap_err().to_string();
        assert!(message.contains("a | out of memory"), "{message}");
        assert!(reader.read("", 0.0).unwrap_err().to_string().contains("empty"));
        for text in ["Time: nan", "Time: inf", "Time: soon"] {
            assert!(matches!(reader.read(text, 0.0), Err(ReadError::NotANumber { .. })), "{text}");
        }
    }

    #[test]
    fn json_is_found_between_other_lines() {
        let output = "warning: {not json}\n{\"a\": {\"b\": [1, 2.5]}, \"s\": \"7\"}\nbye\n";
        assert_eq!(json("/a/b/1").read(output, 0.0).unwrap(), 2.5);
        assert_eq!(json("/s").read(output, 0.0).unwrap(), 7.0);
        assert!(matches!(json("/a/c").read(output, 0.0), Err(ReadError::NoPointer { .. })));
        assert!(matches!(json("/a").read("{\"a\":", 0.0), Err(ReadError::NotJson { .. })));
        assert!(matches!(json("/a").read("none", 0.0), Err(ReadError::NotJson { .. })));
    }

    #[test]
    fn latencies_of_a_cut_output_are_not_all() {
        let end = "wake 7\nunspin init: the output is cut after 4194304 bytes\n";
        let traced = super::super::builtin("vips-traced").unwrap();
        assert!(matches!(traced.read(end, 1.0), Err(ReadError::Cut)));
        assert!(!is_cut("wake 7\n") && !is_cut(""));
    }

    #[test]
    fn a_number_that_its_scale_makes_infinite_is_none() {
        let reader = Reader { scale: 1e10, ..regex(r"Time: (\S+)") };
        assert_eq!(reader.read("Time: 2", 0.0).unwrap(), 2e10);
        assert!(matches!(reader.read("Time: 1e300", 0.0), Err(ReadError::NotANumber { .. })));
    }

    #[test]
    fn elapsed_is_scaled_too() {
        assert_eq!(Reader { place: Place::Elapsed, scale: 1e3 }.read("", 1.5).unwrap(), 1500.0);
    }
}
