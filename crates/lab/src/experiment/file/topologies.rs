//! The `[[topology]]` tables, and the checks of their values.

use std::collections::BTreeSet;

use serde::Deserialize;
use toml::Spanned;
use unspin_model::Accel;
use unspin_wire::{Fairness, Injection};

use super::{RawExperiment, Source, known};
use crate::experiment::asked::Asked;
use crate::experiment::bounds;
use crate::experiment::neighbour::{self, RawNeighbour};
use crate::experiment::simulated::RawSimulated;
use crate::experiment::topology::{Nested, Pcpus, Refusals, Spinlock, Topology};
use crate::toml_error::ConfigError;
use crate::workload::Workload;

const DEFAULT_MEMORY_MIB: u64 = 768;
const DEFAULT_L1_MEMORY_MIB: u64 = 3072;

/// The content of a `[[topology]]` table before it is checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTopology {
    name: Spanned<String>,
    vcpus: Spanned<u32>,
    pcpus: Spanned<Pcpus>,
    memory_mib: Option<Spanned<u64>>,
    pub(super) accel: Option<Spanned<Asked>>,
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
    memory_mib: Option<Spanned<u64>>,
    pv_spinlocks: Option<bool>,
    steal_time: Option<bool>,
    pause_exits: Option<bool>,
    #[serde(default)]
    without: Vec<String>,
    host_params: Option<String>,
}

/// Checks the topologies of an experiment with these workloads.
pub(super) fn check(
    source: &Source,
    raw: &RawExperiment,
    workloads: &[Workload],
) -> Result<Vec<Topology>, ConfigError> {
    let mut seen = BTreeSet::new();
    let declared = Declared {
        schedulers: raw.schedulers.iter().map(|s| s.get_ref().clone()).collect(),
        workloads: workloads.iter().map(|workload| workload.name.clone()).collect(),
    };
    let one = |topology: &RawTopology| {
        if !seen.insert(topology.name.get_ref().clone()) {
            return Err(source.error(&topology.name, "two topologies have this name"));
        }
        check_topology(source, topology, raw, &declared)
    };
    let topologies = raw.topologies.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    check_real_accel(source, &raw.topologies, &topologies)?;
    Ok(topologies)
}

/// Checks that all topologies in real time ask for the same accelerator, because an experiment has
/// only one. Otherwise the first topology's accelerator would also run the topologies that ask for
/// another.
fn check_real_accel(
    source: &Source,
    raw: &[RawTopology],
    topologies: &[Topology],
) -> Result<(), ConfigError> {
    let mut real = raw.iter().zip(topologies).filter(|(_, one)| !one.in_virtual_time());
    let Some((first_raw, first)) = real.next() else { return Ok(()) };
    let Some((other_raw, other)) = real.find(|(_, other)| other.accel != first.accel) else {
        return Ok(());
    };
    // The accelerators differ, so at least one of the two topologies sets its own.
    let Some(at) = other_raw.accel.as_ref().or(first_raw.accel.as_ref()) else { return Ok(()) };
    let [one, another] = [first, other].map(|it| it.accel.map_or("real", Accel::as_str));
    let message = format!(
        "in real time all topologies have one accelerator, and `{}` asks for `{one}`, `{}` for \
         `{another}`: write the same `accel` for both, or make two experiments",
        first.name, other.name
    );
    Err(source.error(at, message))
}

/// The names that an experiment lists. A topology may select some of them.
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
    let vcpus = bounds::vcpus(source, &raw.vcpus)?;
    check_pcpus(source, raw)?;
    let memory_mib = bounds::memory_mib(source, raw.memory_mib.as_ref())?;
    check_injector(source, raw)?;
    if let (Some(nested), Some(_)) = (&raw.nested, raw.spinlock) {
        let message = "a nested guest has the spinlock of its regime: leave `spinlock` out";
        return Err(source.error(&nested.regime, message));
    }
    let (real, models) = neighbour::check(source, &raw.neighbours)?;
    let accel = raw.accel.as_ref().map(|asked| *asked.get_ref());
    let some = |names: &Option<Vec<Spanned<String>>>, all: &[String]| {
        let check = |n: &Spanned<String>| known(source, n.clone(), all.iter().cloned());
        let names = names.as_ref();
        names.map(|names| names.iter().map(check).collect::<Result<Vec<_>, _>>()).transpose()
    };
    Ok(Topology {
        name: raw.name.get_ref().clone(),
        vcpus,
        pcpus: raw.pcpus.clone(),
        memory_mib: memory_mib.unwrap_or(DEFAULT_MEMORY_MIB),
        spinlock: raw.spinlock,
        fairness: raw.fairness,
        pinned: is_pinned(raw),
        neighbours: real,
        accel: accel.or(experiment.accel).and_then(Asked::accel),
        simulated: raw.vt.or(&experiment.vt).check(source, raw.fairness, models)?,
        refusals: refusals(raw),
        nested: raw.nested.as_ref().map(|nested| check_nested(source, nested)).transpose()?,
        injection: raw.injector.as_ref().map(|i| i.get_ref().clone()),
        schedulers: some(&raw.schedulers, &declared.schedulers)?,
        workloads: some(&raw.workloads, &declared.workloads)?,
    })
}

fn check_pcpus(source: &Source, raw: &RawTopology) -> Result<(), ConfigError> {
    let (vcpus, pcpus) = (*raw.vcpus.get_ref(), raw.pcpus.get_ref());
    if pcpus.count() == 0 {
        return Err(source.error(&raw.pcpus, "a topology needs at least one pCPU"));
    }
    if let Some(cpu) = pcpus.repeated() {
        let message = format!("pCPU {cpu} is there twice: list each one once");
        return Err(source.error(&raw.pcpus, message));
    }
    if let Some(pinned) = raw.pinned.as_ref().filter(|p| *p.get_ref()) {
        if pcpus.count() < vcpus && vcpus % pcpus.count() != 0 {
            return Err(source.error(pinned, "pinned needs as many vCPUs for each pCPU"));
        }
    }
    Ok(())
}

/// Returns the keys that prevent virtual time, and the keys that require it.
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
    for (key, us) in [("gap_us", plan.gap_us), ("after_ms", plan.after_ms.saturating_mul(1_000))] {
        if !bounds::is_duration_us(us) {
            return Err(source.error(injector, format!("{key}: {}", bounds::too_long())));
        }
    }
    Ok(())
}

fn check_nested(source: &Source, raw: &RawNested) -> Result<Nested, ConfigError> {
    let memory_mib = bounds::memory_mib(source, raw.memory_mib.as_ref())?;
    let memory_mib = memory_mib.unwrap_or(DEFAULT_L1_MEMORY_MIB);
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
