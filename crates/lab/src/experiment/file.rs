//! The format of an experiment's file, and the checks of its values.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use unspin_model::Accel;
use unspin_wire::TruthMode;

use super::asked::Asked;
use super::simulated::RawSimulated;
use super::topology::Topology;
use super::{Command, Experiment, Scheduler};
use crate::toml_error::{ConfigError, choices};
use crate::workload::{self, Workload};
use topologies::RawTopology;

mod topologies;

const DEFAULT_SMALLEST_EFFECT: f64 = 0.03;

/// The content of an experiment's file before it is checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawExperiment {
    name: Spanned<String>,
    title: String,
    about: String,
    repeats: Spanned<u32>,
    #[serde(default)]
    seed: u64,
    accel: Option<Asked>,
    #[serde(default)]
    vt: RawSimulated,
    seconds: Option<Spanned<u32>>,
    time_limit_s: Option<Spanned<f64>>,
    boot_limit_s: Option<Spanned<f64>>,
    baseline_scheduler: Option<Spanned<String>>,
    baseline_topology: Option<Spanned<String>>,
    smallest_effect: Option<Spanned<f64>>,
    #[serde(default)]
    truth: TruthMode,
    #[serde(default)]
    keep_recordings: bool,
    keep_latencies: Option<Spanned<bool>>,
    #[serde(default)]
    fresh_boots: bool,
    kernels: Vec<String>,
    boot_params: Option<Vec<String>>,
    schedulers: Vec<Spanned<String>>,
    #[serde(default, rename = "command")]
    commands: Vec<Command>,
    workloads: Vec<Spanned<String>>,
    #[serde(rename = "topology")]
    topologies: Vec<RawTopology>,
}

/// The file under check. Errors use its text to name a line.
pub(super) struct Source<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    pub(super) fn error<T>(&self, at: &Spanned<T>, message: impl Into<String>) -> ConfigError {
        ConfigError::at(self.file, self.text, at.span(), message)
    }
}

/// Checks a file's content and turns it into an experiment.
pub(super) fn check(
    raw: RawExperiment,
    file: &Path,
    text: &str,
) -> Result<Experiment, ConfigError> {
    let source = Source { file, text };
    if *raw.repeats.get_ref() == 0 {
        return Err(source.error(&raw.repeats, "repeats must be at least 1"));
    }
    let keep_latencies = raw.keep_latencies.as_ref().filter(|keep| *keep.get_ref());
    if let Some(keep) = keep_latencies.filter(|_| raw.truth != TruthMode::Events) {
        let message = "keep_latencies needs single intervals: write `truth = \"events\"`";
        return Err(source.error(keep, message));
    }
    let keep_latencies = keep_latencies.is_some();
    let schedulers = schedulers(&source, &raw)?;
    let mut workloads: Vec<Workload> =
        raw.workloads.iter().map(|name| find_workload(&source, name)).collect::<Result<_, _>>()?;
    each_once(file, "workloads", workloads.iter().map(|it| it.name.clone()).collect())?;
    let mut topologies = topologies::check(&source, &raw, &workloads)?;
    if says_nothing_of_time(&raw) && topologies.iter().all(Topology::may_be_in_virtual_time) {
        topologies.iter_mut().for_each(|topology| topology.accel = Some(Accel::Vt));
    }
    let baseline_scheduler = match raw.baseline_scheduler {
        Some(name) => known(&source, name, schedulers.iter().map(Scheduler::name))?,
        None => schedulers.first().map(Scheduler::name).unwrap_or_default(),
    };
    let baseline_topology = raw
        .baseline_topology
        .map(|name| known(&source, name, topologies.iter().map(|t| t.name.clone())))
        .transpose()?;
    set_seconds(&source, &mut workloads, raw.seconds)?;
    let experiment = Experiment {
        name: file_name(&source, &raw.name)?,
        title: raw.title,
        about: raw.about.trim().to_owned(),
        repeats: raw.repeats.into_inner(),
        seed: raw.seed,
        time_limit_s: limit(&source, "time_limit_s", raw.time_limit_s)?,
        boot_limit_s: limit(&source, "boot_limit_s", raw.boot_limit_s)?,
        baseline_scheduler,
        baseline_topology,
        smallest_effect: smallest_effect(&source, raw.smallest_effect)?,
        truth: raw.truth,
        keep_recordings: raw.keep_recordings,
        keep_latencies,
        fresh_boots: raw.fresh_boots,
        kernels: each_once(file, "kernels", raw.kernels)?,
        boot_params: each_once(
            file,
            "boot_params",
            raw.boot_params.unwrap_or(vec![String::new()]),
        )?,
        schedulers: not_empty(file, "schedulers", schedulers)?,
        workloads: not_empty(file, "workloads", workloads)?,
        topologies: not_empty(file, "topology", topologies)?,
        file: file.to_owned(),
        text: text.to_owned(),
    };
    experiment.check_accel()?;
    Ok(experiment)
}

/// Returns whether the file leaves the accelerator open. Such an experiment runs in virtual time if
/// each of its topologies can.
fn says_nothing_of_time(raw: &RawExperiment) -> bool {
    raw.accel.is_none() && raw.topologies.iter().all(|topology| topology.accel.is_none())
}

/// Replaces the running time of the workloads that have one by the experiment's.
fn set_seconds(
    source: &Source,
    workloads: &mut [Workload],
    seconds: Option<Spanned<u32>>,
) -> Result<(), ConfigError> {
    let Some(seconds) = seconds else { return Ok(()) };
    if *seconds.get_ref() == 0 {
        return Err(source.error(&seconds, "a workload runs for at least 1 second"));
    }
    let mut timed =
        workloads.iter_mut().filter_map(|workload| workload.seconds.as_mut()).peekable();
    if timed.peek().is_none() {
        return Err(source.error(&seconds, "none of the workloads runs for a time"));
    }
    timed.for_each(|of_workload| *of_workload = *seconds.get_ref());
    Ok(())
}

fn not_empty<T>(file: &Path, key: &str, list: Vec<T>) -> Result<Vec<T>, ConfigError> {
    if list.is_empty() {
        return Err(ConfigError::file(file, format!("`{key}` must list at least one")));
    }
    Ok(list)
}

/// Checks that a list has no duplicates. A run's names could not distinguish two equal entries.
fn each_once(file: &Path, key: &str, list: Vec<String>) -> Result<Vec<String>, ConfigError> {
    let mut known = BTreeSet::new();
    if let Some(twice) = list.iter().find(|one| !known.insert(*one)) {
        return Err(ConfigError::file(file, format!("`{key}` lists `{twice}` twice")));
    }
    not_empty(file, key, list)
}

fn known(
    source: &Source,
    name: Spanned<String>,
    names: impl Iterator<Item = String>,
) -> Result<String, ConfigError> {
    let names: Vec<String> = names.collect();
    if names.contains(name.get_ref()) {
        return Ok(name.into_inner());
    }
    let message = format!("unknown `{}`, expected one of {}", name.get_ref(), choices(&names));
    Err(source.error(&name, message))
}

/// Checks an experiment's name. It also names a folder, so only plain characters are valid.
fn file_name(source: &Source, name: &Spanned<String>) -> Result<String, ConfigError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.get_ref().is_empty() || !name.get_ref().chars().all(plain) {
        return Err(source.error(name, "a name is made of lower-case letters, digits and `-`"));
    }
    Ok(name.get_ref().clone())
}

fn limit(
    source: &Source,
    key: &str,
    limit: Option<Spanned<f64>>,
) -> Result<Option<f64>, ConfigError> {
    match limit {
        Some(limit) if !(1.0..=3600.0).contains(limit.get_ref()) => {
            Err(source.error(&limit, format!("{key} must be between 1 and 3600 seconds")))
        }
        limit => Ok(limit.map(Spanned::into_inner)),
    }
}

fn smallest_effect(source: &Source, share: Option<Spanned<f64>>) -> Result<f64, ConfigError> {
    match share {
        Some(share) if !(0.0..1.0).contains(share.get_ref()) => {
            Err(source.error(&share, "smallest_effect is a share below 1, such as 0.03 for 3 %"))
        }
        share => Ok(share.map_or(DEFAULT_SMALLEST_EFFECT, Spanned::into_inner)),
    }
}

fn schedulers(source: &Source, raw: &RawExperiment) -> Result<Vec<Scheduler>, ConfigError> {
    let mut seen = BTreeSet::new();
    let one = |name: &Spanned<String>| {
        if !seen.insert(name.get_ref().clone()) {
            return Err(source.error(name, format!("`{}` is listed twice", name.get_ref())));
        }
        Scheduler::parse(name.get_ref(), &raw.commands).map_err(|e| source.error(name, e))
    };
    raw.schedulers.iter().map(one).collect()
}

/// Finds a workload by the name of a shipped one, or by a path relative to the experiment's file.
pub(super) fn find_workload(
    source: &Source,
    name: &Spanned<String>,
) -> Result<Workload, ConfigError> {
    if let Some(found) = workload::builtin(name.get_ref()) {
        return Ok(found);
    }
    if name.get_ref().ends_with(".toml") {
        let folder = source.file.parent().unwrap_or(Path::new("."));
        return Workload::load(&folder.join(PathBuf::from(name.get_ref())));
    }
    let names = choices(workload::builtin_names());
    let message = format!("unknown workload `{}`, expected one of {names}", name.get_ref());
    Err(source.error(name, message))
}

#[cfg(test)]
mod tests;
