//! The `[[topology.neighbour]]` tables: other VMs on the same pCPUs. A neighbour is a real VM with
//! a workload or, in virtual time, a model.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use unspin_wire::{NeighbourModel, VirtualNeighbour};

use super::file::{Source, find_workload};
use super::{Neighbour, bounds};
use crate::toml_error::ConfigError;

const DEFAULT_MEMORY_MIB: u64 = 512;
const DEFAULT_WORK_US: u64 = 10_000;
const DEFAULT_SLEEP_US: u64 = 10_000;
/// Number of intervals that the simulated host accepts.
const TIMES_MAX: usize = 64;
/// `HOST_GROUPS_MAX` of policy/host/config.h, minus the guest's group and the root group.
const MODELS_MAX: usize = 6;

pub(super) const WRITE_A_MODEL: &str = "in virtual time a neighbour is modelled: \
    write `model = \"greedy\"` (or \"periodic\", \"burst\" with work_us and sleep_us, \"at\" with times_us) \
    instead of `workload`";
pub(super) const WRITE_A_WORKLOAD: &str = "a modelled neighbour exists in virtual time only: write `workload = \"greedy\"`, or run with `--accel vt`";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawNeighbour {
    vcpus: Spanned<u32>,
    workload: Option<Spanned<String>>,
    memory_mib: Option<Spanned<u64>>,
    model: Option<Spanned<NeighbourModel>>,
    work_us: Option<Spanned<u64>>,
    sleep_us: Option<Spanned<u64>>,
    phase_us: Option<Spanned<u64>>,
    times_us: Option<Spanned<Vec<(u64, u64)>>>,
}

/// Returns the place in the file of the first neighbour that is a real VM.
pub(super) fn first_real(raw: &[RawNeighbour]) -> Option<Range<usize>> {
    raw.iter().find_map(|neighbour| neighbour.workload.as_ref()).map(Spanned::span)
}

/// Returns the place in the file of the first neighbour that is a model.
pub(super) fn first_model(raw: &[RawNeighbour]) -> Option<Range<usize>> {
    raw.iter().find_map(|neighbour| neighbour.model.as_ref()).map(Spanned::span)
}

/// Checks the neighbours and returns the real ones and the models.
pub(super) fn check(
    source: &Source,
    raw: &[RawNeighbour],
) -> Result<(Vec<Neighbour>, Vec<VirtualNeighbour>), ConfigError> {
    let (mut real, mut models) = (Vec::new(), Vec::new());
    for (index, neighbour) in raw.iter().enumerate() {
        bounds::vcpus(source, &neighbour.vcpus)?;
        let name = format!("neighbour{}", index + 1);
        match (&neighbour.workload, &neighbour.model) {
            (Some(workload), None) => real.push(check_real(source, neighbour, workload, name)?),
            (None, Some(model)) if models.len() == MODELS_MAX => {
                let message = format!("a simulated host has at most {MODELS_MAX} neighbours");
                return Err(source.error(model, message));
            }
            (None, Some(model)) => models.push(check_model(source, neighbour, model, name)?),
            _ => {
                let message = "a neighbour has either a `workload` or a `model`";
                return Err(source.error(&neighbour.vcpus, message));
            }
        }
    }
    Ok((real, models))
}

fn check_real(
    source: &Source,
    raw: &RawNeighbour,
    name: &Spanned<String>,
    vm: String,
) -> Result<Neighbour, ConfigError> {
    let workload = find_workload(source, name)?;
    if !workload.until_stopped {
        let message = "a neighbour's workload must run until it is stopped (until_stopped = true)";
        return Err(source.error(name, message));
    }
    let memory_mib = bounds::memory_mib(source, raw.memory_mib.as_ref())?;
    Ok(Neighbour {
        name: vm,
        vcpus: *raw.vcpus.get_ref(),
        memory_mib: memory_mib.unwrap_or(DEFAULT_MEMORY_MIB),
        workload,
    })
}

fn check_model(
    source: &Source,
    raw: &RawNeighbour,
    model: &Spanned<NeighbourModel>,
    name: String,
) -> Result<VirtualNeighbour, ConfigError> {
    let times = times(source, raw)?;
    let ascending = times.iter().all(|(from, to)| from < to)
        && times.windows(2).all(|pair| pair[0].1 <= pair[1].0);
    let count = times.len();
    if *model.get_ref() == NeighbourModel::At && !(ascending && (1..=TIMES_MAX).contains(&count)) {
        let message = format!("`at` needs 1 to {TIMES_MAX} ascending pairs in times_us");
        return Err(source.error(model, message));
    }
    let ns = |duration: &Option<Spanned<u64>>, default_us: u64| -> Result<u64, ConfigError> {
        let us = bounds::duration_us(source, duration.as_ref())?;
        Ok(us.unwrap_or(default_us) * 1_000)
    };
    let (work_ns, sleep_ns) =
        (ns(&raw.work_us, DEFAULT_WORK_US)?, ns(&raw.sleep_us, DEFAULT_SLEEP_US)?);
    let alternates = matches!(model.get_ref(), NeighbourModel::Periodic | NeighbourModel::Burst);
    if alternates && (work_ns == 0 || sleep_ns == 0) {
        let message =
            "work_us and sleep_us are at least 1: write `model = \"greedy\"` for no sleep";
        return Err(source.error(model, message));
    }
    Ok(VirtualNeighbour {
        name,
        vcpus: *raw.vcpus.get_ref(),
        model: *model.get_ref(),
        work_ns,
        sleep_ns,
        phase_ns: ns(&raw.phase_us, 0)?,
        times_ns: times.iter().map(|(from, to)| (from * 1_000, to * 1_000)).collect(),
    })
}

/// Checks the intervals of `times_us`, pairs of microseconds.
fn times<'a>(source: &Source, raw: &'a RawNeighbour) -> Result<&'a [(u64, u64)], ConfigError> {
    let Some(times) = &raw.times_us else { return Ok(&[]) };
    let bounded = |(from, to): &(u64, u64)| bounds::is_duration_us(*from.max(to));
    match times.get_ref().iter().all(bounded) {
        true => Ok(times.get_ref()),
        false => Err(source.error(times, bounds::too_long())),
    }
}
