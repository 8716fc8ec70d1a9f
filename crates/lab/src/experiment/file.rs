//! The format of an experiment's file, and what is checked in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use unspin_model::Accel;
use unspin_wire::{Fairness, Injection, TruthMode};

use super::asked::Asked;
use super::neighbour::{self, RawNeighbour};
use super::simulated::RawSimulated;
use super::topology::{Nested, Pcpus, Refusals, Spinlock, Topology};
use super::{Command, Experiment, Scheduler};
use crate::toml_error::{ConfigError, choices};
use crate::workload::{self, Workload};

const VCPUS_MAX: u32 = 128;
const DEFAULT_MEMORY_MIB: u64 = 768;
const DEFAULT_L1_MEMORY_MIB: u64 = 3072;
const DEFAULT_SMALLEST_EFFECT: f64 = 0.03;

/// An experiment's file as it is written.
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
    smallest_effect: Option<f64>,
    #[serde(default)]
    truth: TruthMode,
    #[serde(default)]
    keep_recordings: bool,
    #[serde(default)]
    keep_latencies: bool,
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTopology {
    name: Spanned<String>,
    vcpus: Spanned<u32>,
    pcpus: Spanned<Pcpus>,
    memory_mib: Option<Spanned<u64>>,
    accel: Option<Asked>,
    #[serde(default)]
    vt: RawSimulated,
    spinlock: Option<Spinlock>,
    #[serde(default)]
    fairness: Fairness,
    pinned: Option<Spanned<bool>>,
    #[serde(default, rename = "neighbour")]
    neighbours: Vec<RawNeighbour>,
    nested: Option<RawNested>,
    injector: Option<Spanned<Injection>>,
    schedulers: Option<Vec<Spanned<String>>>,
    workloads: Option<Vec<Spanned<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNested {
    regime: Spanned<String>,
    memory_mib: Option<u64>,
    pv_spinlocks: Option<bool>,
    steal_time: Option<bool>,
    pause_exits: Option<bool>,
    #[serde(default)]
    without: Vec<String>,
    host_params: Option<String>,
}

/// The file under check: what an error needs to say where it is.
pub(super) struct Source<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    pub(super) fn error<T>(&self, at: &Spanned<T>, message: impl Into<String>) -> ConfigError {
        ConfigError::at(self.file, self.text, at.span(), message)
    }
}

/// Turns a file's content into an experiment.
pub(super) fn check(
    raw: RawExperiment,
    file: &Path,
    text: &str,
) -> Result<Experiment, ConfigError> {
    let source = Source { file, text };
    if *raw.repeats.get_ref() == 0 {
        return Err(source.error(&raw.repeats, "repeats must be at least 1"));
    }
    let schedulers = schedulers(&source, &raw)?;
    let mut workloads: Vec<Workload> =
        raw.workloads.iter().map(|name| find_workload(&source, name)).collect::<Result<_, _>>()?;
    each_once(file, "workloads", workloads.iter().map(|it| it.name.clone()).collect())?;
    let mut topologies = topologies(&source, &raw, &workloads)?;
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
        smallest_effect: raw.smallest_effect.unwrap_or(DEFAULT_SMALLEST_EFFECT),
        truth: raw.truth,
        keep_recordings: raw.keep_recordings,
        keep_latencies: raw.keep_latencies,
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

/// Such an experiment runs in virtual time, if each of its topologies can.
fn says_nothing_of_time(raw: &RawExperiment) -> bool {
    raw.accel.is_none() && raw.topologies.iter().all(|topology| topology.accel.is_none())
}

/// An experiment's time goes before those of its workloads that run for a time.
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

/// A run's names could not say which of two equal entries it is of.
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

/// The name becomes a folder's name, so it must be a plain one.
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

/// A shipped workload's name, or a path relative to the experiment's file.
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

fn topologies(
    source: &Source,
    raw: &RawExperiment,
    workloads: &[Workload],
) -> Result<Vec<Topology>, ConfigError> {
    let mut seen = BTreeSet::new();
    let declared = Declared {
        schedulers: raw.schedulers.iter().map(|s| s.get_ref().clone()).collect(),
        workloads: workloads.iter().map(|workload| workload.name.clone()).collect(),
    };
    raw.topologies
        .iter()
        .map(|topology| {
            if !seen.insert(topology.name.get_ref().clone()) {
                return Err(source.error(&topology.name, "two topologies have this name"));
            }
            check_topology(source, topology, raw, &declared)
        })
        .collect()
}

/// What an experiment lists, by name; a topology may list some of them.
struct Declared {
    schedulers: Vec<String>,
    workloads: Vec<String>,
}

fn check_topology(
    source: &Source,
    raw: &RawTopology,
    experiment: &RawExperiment,
    declared: &Declared,
) -> Result<Topology, ConfigError> {
    check_vcpus(source, &raw.vcpus)?;
    let (vcpus, pcpus) = (*raw.vcpus.get_ref(), raw.pcpus.get_ref());
    if pcpus.count() == 0 {
        return Err(source.error(&raw.pcpus, "a topology needs at least one pCPU"));
    }
    if let Some(pinned) = raw.pinned.as_ref().filter(|p| *p.get_ref()) {
        if pcpus.count() < vcpus && vcpus % pcpus.count() != 0 {
            return Err(source.error(pinned, "pinned needs as many vCPUs for each pCPU"));
        }
    }
    if let Some(memory) = raw.memory_mib.as_ref().filter(|m| *m.get_ref() < 128) {
        return Err(source.error(memory, "a guest needs at least 128 MiB"));
    }
    check_injector(source, raw)?;
    let (real, models) = neighbour::check(source, &raw.neighbours)?;
    let some = |names: &Option<Vec<Spanned<String>>>, all: &[String]| {
        let check = |n: &Spanned<String>| known(source, n.clone(), all.iter().cloned());
        let names = names.as_ref();
        names.map(|names| names.iter().map(check).collect::<Result<Vec<_>, _>>()).transpose()
    };
    Ok(Topology {
        name: raw.name.get_ref().clone(),
        vcpus,
        pcpus: raw.pcpus.clone(),
        memory_mib: raw.memory_mib.as_ref().map_or(DEFAULT_MEMORY_MIB, |m| *m.get_ref()),
        spinlock: raw.spinlock,
        fairness: raw.fairness,
        pinned: is_pinned(raw),
        neighbours: real,
        accel: raw.accel.or(experiment.accel).and_then(Asked::accel),
        simulated: raw.vt.or(&experiment.vt).check(source, raw.fairness, models)?,
        refusals: refusals(raw),
        nested: raw.nested.as_ref().map(|nested| check_nested(source, nested)).transpose()?,
        injection: raw.injector.as_ref().map(|i| i.get_ref().clone()),
        schedulers: some(&raw.schedulers, &declared.schedulers)?,
        workloads: some(&raw.workloads, &declared.workloads)?,
    })
}

/// What keeps a topology from virtual time, and what keeps it in virtual time.
fn refusals(raw: &RawTopology) -> Refusals {
    let nested = raw.nested.as_ref().map(|nested| nested.regime.span());
    let virtual_time = [
        (nested, "virtual time knows no L1: write `[topology.vt]` with a `regime` instead"),
        (neighbour::first_real(&raw.neighbours), neighbour::WRITE_A_MODEL),
    ];
    let first = |(at, message): (Option<_>, &str)| Some((at?, message.to_owned()));
    let model = neighbour::first_model(&raw.neighbours);
    Refusals {
        virtual_time: virtual_time.into_iter().find_map(first),
        real_time: first((model, neighbour::WRITE_A_WORKLOAD)),
    }
}

fn is_pinned(raw: &RawTopology) -> bool {
    raw.pinned.as_ref().is_some_and(|pinned| *pinned.get_ref())
}

pub(super) fn check_vcpus(source: &Source, vcpus: &Spanned<u32>) -> Result<(), ConfigError> {
    if (1..=VCPUS_MAX).contains(vcpus.get_ref()) {
        return Ok(());
    }
    Err(source.error(vcpus, format!("a guest has 1 to {VCPUS_MAX} vCPUs")))
}

fn check_injector(source: &Source, raw: &RawTopology) -> Result<(), ConfigError> {
    let Some(injector) = &raw.injector else { return Ok(()) };
    if !is_pinned(raw) || raw.pcpus.get_ref().count() < *raw.vcpus.get_ref() {
        let message = "an injector needs `pinned = true` and a pCPU for each vCPU";
        return Err(source.error(injector, message));
    }
    let plan = injector.get_ref();
    if plan.lengths_us.is_empty() || plan.lengths_us.iter().any(|us| !(10..=100_000).contains(us)) {
        return Err(source.error(injector, "lengths_us lists lengths of 10 to 100000 microseconds"));
    }
    Ok(())
}

fn check_nested(source: &Source, raw: &RawNested) -> Result<Nested, ConfigError> {
    let memory_mib = raw.memory_mib.unwrap_or(DEFAULT_L1_MEMORY_MIB);
    let regime = raw.regime.get_ref();
    let named = Nested::regime(regime, memory_mib).ok_or_else(|| {
        let message = format!("unknown regime `{regime}`, expected `pv`, `ple` or `abandoned`");
        source.error(&raw.regime, message)
    })?;
    Ok(Nested {
        pv_spinlocks: raw.pv_spinlocks.unwrap_or(named.pv_spinlocks),
        steal_time: raw.steal_time.unwrap_or(named.steal_time),
        pause_exits: raw.pause_exits.unwrap_or(named.pause_exits),
        without: raw.without.clone(),
        host_params: raw.host_params.clone().unwrap_or_default(),
        ..named
    })
}

#[cfg(test)]
mod tests;
