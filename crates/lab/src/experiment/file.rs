//! The format of an experiment's file, and what is checked in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::topology::{Neighbour, Nested, Pcpus, Spinlock, Topology};
use super::{Command, Experiment, Scheduler};
use crate::toml_error::{ConfigError, choices};
use crate::wire::{Fairness, Injection, TruthMode};
use crate::workload::{self, Workload};

const VCPUS_MAX: u32 = 64;
const DEFAULT_MEMORY_MIB: u64 = 768;
const DEFAULT_NEIGHBOUR_MEMORY_MIB: u64 = 512;
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
    #[serde(default)]
    spinlock: Spinlock,
    #[serde(default)]
    fairness: Fairness,
    pinned: Option<Spanned<bool>>,
    #[serde(default, rename = "neighbour")]
    neighbours: Vec<RawNeighbour>,
    nested: Option<RawNested>,
    injector: Option<Spanned<Injection>>,
    schedulers: Option<Vec<Spanned<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNeighbour {
    vcpus: Spanned<u32>,
    workload: Spanned<String>,
    memory_mib: Option<u64>,
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
struct Source<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn error<T>(&self, at: &Spanned<T>, message: impl Into<String>) -> ConfigError {
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
    let topologies = topologies(&source, &raw)?;
    let baseline_scheduler = match raw.baseline_scheduler {
        Some(name) => known(&source, name, schedulers.iter().map(Scheduler::name))?,
        None => schedulers.first().map(Scheduler::name).unwrap_or_default(),
    };
    let baseline_topology = raw
        .baseline_topology
        .map(|name| known(&source, name, topologies.iter().map(|t| t.name.clone())))
        .transpose()?;
    let workloads =
        raw.workloads.iter().map(|name| find_workload(&source, name)).collect::<Result<_, _>>()?;
    Ok(Experiment {
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
        fresh_boots: raw.fresh_boots,
        kernels: not_empty(file, "kernels", raw.kernels)?,
        boot_params: not_empty(
            file,
            "boot_params",
            raw.boot_params.unwrap_or(vec![String::new()]),
        )?,
        schedulers: not_empty(file, "schedulers", schedulers)?,
        workloads: not_empty(file, "workloads", workloads)?,
        topologies: not_empty(file, "topology", topologies)?,
        file: file.to_owned(),
        text: text.to_owned(),
    })
}

fn not_empty<T>(file: &Path, key: &str, list: Vec<T>) -> Result<Vec<T>, ConfigError> {
    if list.is_empty() {
        return Err(ConfigError::file(file, format!("`{key}` must list at least one")));
    }
    Ok(list)
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
fn find_workload(source: &Source, name: &Spanned<String>) -> Result<Workload, ConfigError> {
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

fn topologies(source: &Source, raw: &RawExperiment) -> Result<Vec<Topology>, ConfigError> {
    let mut seen = BTreeSet::new();
    let declared: Vec<String> = raw.schedulers.iter().map(|s| s.get_ref().clone()).collect();
    raw.topologies
        .iter()
        .map(|topology| {
            if !seen.insert(topology.name.get_ref().clone()) {
                return Err(source.error(&topology.name, "two topologies have this name"));
            }
            check_topology(source, topology, &declared)
        })
        .collect()
}

fn check_topology(
    source: &Source,
    raw: &RawTopology,
    schedulers: &[String],
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
    let named = raw.schedulers.as_ref().map(|names| {
        let check = |n: &Spanned<String>| known(source, n.clone(), schedulers.iter().cloned());
        names.iter().map(check).collect::<Result<Vec<_>, _>>()
    });
    Ok(Topology {
        name: raw.name.get_ref().clone(),
        vcpus,
        pcpus: raw.pcpus.clone(),
        memory_mib: raw.memory_mib.as_ref().map_or(DEFAULT_MEMORY_MIB, |m| *m.get_ref()),
        spinlock: raw.spinlock,
        fairness: raw.fairness,
        pinned: is_pinned(raw),
        neighbours: neighbours(source, &raw.neighbours)?,
        nested: raw.nested.as_ref().map(|nested| check_nested(source, nested)).transpose()?,
        injection: raw.injector.as_ref().map(|i| i.get_ref().clone()),
        schedulers: named.transpose()?,
    })
}

fn is_pinned(raw: &RawTopology) -> bool {
    raw.pinned.as_ref().is_some_and(|pinned| *pinned.get_ref())
}

fn check_vcpus(source: &Source, vcpus: &Spanned<u32>) -> Result<(), ConfigError> {
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

fn neighbours(source: &Source, raw: &[RawNeighbour]) -> Result<Vec<Neighbour>, ConfigError> {
    raw.iter()
        .enumerate()
        .map(|(index, neighbour)| {
            check_vcpus(source, &neighbour.vcpus)?;
            let workload = find_workload(source, &neighbour.workload)?;
            if !workload.until_stopped {
                let message =
                    "a neighbour's workload must run until it is stopped (until_stopped = true)";
                return Err(source.error(&neighbour.workload, message));
            }
            Ok(Neighbour {
                name: format!("neighbour{}", index + 1),
                vcpus: *neighbour.vcpus.get_ref(),
                memory_mib: neighbour.memory_mib.unwrap_or(DEFAULT_NEIGHBOUR_MEMORY_MIB),
                workload,
            })
        })
        .collect()
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
mod tests {
    use super::*;

    const GOOD: &str = r#"
name = "sample"
title = "A sample"
about = "What?"
repeats = 2
kernels = ["lab"]
schedulers = ["stock", "hold:2"]
workloads = ["stress-ng-rename"]
[[topology]]
name = "2:1"
vcpus = 4
pcpus = 2
[[topology.neighbour]]
vcpus = 4
workload = "greedy"
"#;

    const INJECTOR: &str =
        "injector = { pcpu = 1, lengths_us = [1000], gap_us = 30000, count = 4 }";

    fn error_of(text: &str) -> String {
        Experiment::parse(Path::new("x.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn a_good_file_is_read() {
        let experiment = Experiment::parse(Path::new("x.toml"), GOOD).unwrap();
        assert_eq!(experiment.baseline_scheduler, "stock");
        assert_eq!(experiment.topologies[0].neighbours[0].name, "neighbour1");
        assert_eq!(experiment.boot_params, [""]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line_and_the_choices() {
        let cases = [
            ("repeats = 2", "repeats = 0", "x.toml:5:11: repeats must be at least 1"),
            ("repeats = 2", "repeats = \"2\"", "x.toml:5:11: invalid type"),
            ("vcpus = 4\npcpus", "vcpus = 0\npcpus", "x.toml:11:9: a guest has 1 to 64 vCPUs"),
            ("pcpus = 2", "pcpus = 0", "x.toml:12:9: a topology needs at least one pCPU"),
            ("hold:2", "held:2", "expected `stock`, `hold:K`"),
            ("stress-ng-rename", "stress-rename", "expected one of `"),
            ("pcpus = 2", "pcpus = 2\nsockets = 1", "unknown field `sockets`"),
            ("greedy", "stress-ng-rename", "until_stopped"),
            ("pcpus = 2", "pcpus = 3\npinned = true", "pinned needs as many vCPUs for each pCPU"),
            ("pcpus = 2", &format!("pcpus = 2\npinned = true\n{INJECTOR}"), "a pCPU for each vCPU"),
            (
                "pcpus = 2",
                "pcpus = 2\nnested = { regime = \"tdx\" }",
                "expected `pv`, `ple` or `abandoned`",
            ),
            ("name = \"sample\"", "name = \"../x\"", "x.toml:2:8: a name is made of"),
        ];
        for (from, to, expected) in cases {
            let message = error_of(&GOOD.replacen(from, to, 1));
            assert!(message.contains(expected), "{to}: {message}");
        }
    }
}
