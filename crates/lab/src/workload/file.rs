//! The format of a workload's file, and the checks of its values.

use std::ops::Range;
use std::path::{Path, PathBuf};

use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use toml::Spanned;
use unspin_model::sensed::KnownWaits;
use unspin_model::{Better, Metric};

use super::Workload;
use super::reading::{Place, Reader};
use crate::toml_error::ConfigError;

/// Longest time limit in seconds that is useful in a matrix of runs.
const TIME_LIMIT_MAX_S: f64 = 3600.0;

/// The content of a workload's file before it is checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWorkload {
    name: Spanned<String>,
    title: Spanned<String>,
    stresses: Spanned<String>,
    #[serde(default)]
    packages: Vec<String>,
    programs: Vec<Spanned<String>>,
    #[serde(default)]
    files: Vec<Spanned<PathBuf>>,
    #[serde(default)]
    setup: Vec<Spanned<Vec<String>>>,
    command: Spanned<Vec<String>>,
    seconds: Option<Spanned<u32>>,
    #[serde(default)]
    until_stopped: bool,
    time_limit_s: Spanned<f64>,
    metric: RawMetric,
    read: Spanned<RawRead>,
    #[serde(default)]
    co_metric: Vec<RawCoMetric>,
    #[serde(default)]
    latency: Vec<RawLatency>,
    waits: Option<KnownWaits>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMetric {
    name: Spanned<String>,
    unit: Spanned<String>,
    better: Better,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCoMetric {
    name: Spanned<String>,
    read: Spanned<RawRead>,
}

/// A distribution of latencies. Each match of the regex adds one length.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLatency {
    name: Spanned<String>,
    regex: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRead {
    regex: Option<Spanned<String>>,
    json: Option<Spanned<String>>,
    elapsed: Option<Spanned<bool>>,
    scale: Option<Spanned<f64>>,
}

/// Checks a file's content and turns it into a workload.
///
/// # Errors
/// The first invalid value, at its line.
pub(super) fn check(raw: RawWorkload, file: &Path, text: &str) -> Result<Workload, ConfigError> {
    let source = Source { file, text };
    check_name(&source, &raw.name)?;
    check_time_limit(&source, &raw.time_limit_s)?;
    for argv in raw.setup.iter().chain([&raw.command]) {
        check_argv(&source, argv)?;
    }
    check_seconds(&source, &raw)?;
    for path in &raw.files {
        check_path(&source, path)?;
    }
    let metric = Metric {
        name: source.not_empty(raw.metric.name)?,
        unit: source.not_empty(raw.metric.unit)?,
        better: raw.metric.better,
    };
    Ok(Workload {
        name: raw.name.into_inner(),
        title: source.not_empty(raw.title)?,
        stresses: source.not_empty(raw.stresses)?,
        packages: raw.packages,
        programs: raw
            .programs
            .into_iter()
            .map(|p| source.not_empty(p))
            .collect::<Result<_, _>>()?,
        files: raw.files.into_iter().map(Spanned::into_inner).collect(),
        setup: raw.setup.into_iter().map(Spanned::into_inner).collect(),
        command: raw.command.into_inner(),
        seconds: raw.seconds.map(Spanned::into_inner),
        until_stopped: raw.until_stopped,
        time_limit_s: raw.time_limit_s.into_inner(),
        metric,
        reader: reader(&source, raw.read)?,
        co_metrics: co_metrics(&source, raw.co_metric)?,
        latencies: latencies(&source, raw.latency)?,
        waits: raw.waits,
    })
}

/// The file that errors refer to, and its text.
struct Source<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, span: Range<usize>, message: impl Into<String>) -> ConfigError {
        ConfigError::at(self.file, self.text, span, message)
    }

    fn not_empty(&self, value: Spanned<String>) -> Result<String, ConfigError> {
        match value.get_ref().trim() {
            "" => Err(self.error(value.span(), "must not be empty")),
            _ => Ok(value.into_inner()),
        }
    }
}

fn check_name(source: &Source, name: &Spanned<String>) -> Result<(), ConfigError> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.get_ref().is_empty() && name.get_ref().chars().all(allowed) {
        return Ok(());
    }
    let message = format!("name `{}`: use lower-case letters, digits and `-`", name.get_ref());
    Err(source.error(name.span(), message))
}

fn check_time_limit(source: &Source, limit: &Spanned<f64>) -> Result<(), ConfigError> {
    if *limit.get_ref() > 0.0 && *limit.get_ref() <= TIME_LIMIT_MAX_S {
        return Ok(());
    }
    let message = format!("time_limit_s must be above 0 and at most {TIME_LIMIT_MAX_S} (seconds)");
    Err(source.error(limit.span(), message))
}

/// Checks that the file has `seconds` exactly if the command asks for it.
fn check_seconds(source: &Source, raw: &RawWorkload) -> Result<(), ConfigError> {
    let asks = raw.command.get_ref().iter().any(|word| word.contains("{seconds}"));
    match &raw.seconds {
        None if asks => Err(source.error(raw.command.span(), "{seconds} needs a key `seconds`")),
        Some(seconds) if !asks || *seconds.get_ref() == 0 => {
            Err(source.error(seconds.span(), "seconds is at least 1, for {seconds} in the command"))
        }
        _ => Ok(()),
    }
}

fn check_argv(source: &Source, argv: &Spanned<Vec<String>>) -> Result<(), ConfigError> {
    match argv.get_ref().first() {
        Some(program) if !program.is_empty() => Ok(()),
        _ => {
            Err(source.error(argv.span(), "a command needs a program: [\"PROGRAM\", \"ARG\", ...]"))
        }
    }
}

/// Folders of the image over which a guest mounts file systems.
const MOUNTED: [&str; 4] = ["/tmp", "/dev", "/proc", "/sys"];

fn check_path(source: &Source, path: &Spanned<PathBuf>) -> Result<(), ConfigError> {
    let message = if !path.get_ref().is_absolute() {
        "files must be absolute paths: they keep their path in the guest".into()
    } else if let Some(over) = MOUNTED.iter().find(|over| path.get_ref().starts_with(over)) {
        format!("files must not be below {over}: a guest has a {over} of its own")
    } else {
        return Ok(());
    };
    Err(source.error(path.span(), message))
}

fn co_metrics(
    source: &Source,
    raw: Vec<RawCoMetric>,
) -> Result<Vec<(String, Reader)>, ConfigError> {
    let mut out: Vec<(String, Reader)> = Vec::new();
    for co_metric in raw {
        if out.iter().any(|(name, _)| name == co_metric.name.get_ref()) {
            let message = format!("co_metric `{}` is there twice", co_metric.name.get_ref());
            return Err(source.error(co_metric.name.span(), message));
        }
        out.push((source.not_empty(co_metric.name)?, reader(source, co_metric.read)?));
    }
    Ok(out)
}

fn latencies(source: &Source, raw: Vec<RawLatency>) -> Result<Vec<(String, Regex)>, ConfigError> {
    let one = |latency: RawLatency| {
        Ok((source.not_empty(latency.name)?, compile(source, &latency.regex)?))
    };
    raw.into_iter().map(one).collect()
}

fn reader(source: &Source, raw: Spanned<RawRead>) -> Result<Reader, ConfigError> {
    let span = raw.span();
    let raw = raw.into_inner();
    let place = match (raw.regex, raw.json, raw.elapsed) {
        (Some(pattern), None, None) => Place::Regex(compile(source, &pattern)?),
        (None, Some(pointer), None) => Place::Json(check_pointer(source, pointer)?),
        (None, None, Some(elapsed)) if *elapsed.get_ref() => Place::Elapsed,
        _ => {
            let message = "read needs exactly one of `regex = '...(GROUP)...'`, \
                           `json = \"/pointer\"`, `elapsed = true`";
            return Err(source.error(span, message));
        }
    };
    let scale = match raw.scale {
        Some(scale) if !scale.get_ref().is_normal() => {
            return Err(source.error(scale.span(), "scale must be a number other than 0"));
        }
        scale => scale.map_or(1.0, Spanned::into_inner),
    };
    Ok(Reader { place, scale })
}

fn compile(source: &Source, pattern: &Spanned<String>) -> Result<Regex, ConfigError> {
    let regex = RegexBuilder::new(pattern.get_ref()).multi_line(true).build().map_err(|error| {
        let reason = error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ");
        source.error(pattern.span(), reason)
    })?;
    if regex.captures_len() < 2 {
        return Err(
            source.error(pattern.span(), "the regex needs a group `(...)` round the number")
        );
    }
    Ok(regex)
}

fn check_pointer(source: &Source, pointer: Spanned<String>) -> Result<String, ConfigError> {
    if pointer.get_ref().starts_with('/') {
        return Ok(pointer.into_inner());
    }
    Err(source
        .error(pointer.span(), "a JSON pointer starts with `/`, such as `/end/bits_per_second`"))
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
