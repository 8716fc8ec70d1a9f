//! The planned runs and the identity of each.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::json;
use unspin_host::vm::{qemu_args, qemu_program};
use unspin_model::identity::{Draw, Host, Identity, Ingredients, VirtualTime};
use unspin_sources::kernel::Kernel;
use unspin_wire::{BootSpec, RunSpec, VmSpec};

use super::prepare::Prepared;
use super::{LabError, Selection, parts, specs};
use crate::experiment::{Experiment, PlannedBoot, PlannedRun, plan};
use crate::host::vt::cvm;
use crate::host::{kernel_params, virtual_args};
use crate::image::{FileDigests, Image, ImageError, find_program};
use crate::machine;
use crate::workload::Workload;

/// The names under which a planned run is filed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// Identity of the run.
    pub identity: Identity,
    /// Identity of the setting that all runs of the cell share.
    pub setting: Identity,
    /// Whether a finished run never needs to be repeated, on any machine.
    pub deterministic: bool,
}

/// All runs of an experiment on this machine, with the ingredients that decide their results.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The boots, in order.
    pub boots: Vec<PlannedBoot>,
    /// Names of each run, by its number.
    pub names: BTreeMap<u64, Names>,
    /// Ingredients of each setting.
    pub settings: BTreeMap<Identity, Ingredients>,
}

impl Plan {
    /// Plans the runs and computes their names.
    pub fn new(experiment: &Experiment, prepared: &Prepared) -> Result<Plan, LabError> {
        let mut recipe = Recipe::new(experiment, prepared)?;
        let mut plan = Plan { boots: plan(experiment), ..Plan::default() };
        let mut of_cell: HashMap<_, Ingredients> = HashMap::new();
        for boot in &plan.boots {
            for run in &boot.runs {
                let ingredients = match of_cell.get(&run.cell) {
                    Some(known) => known,
                    None => {
                        let new = recipe.ingredients(boot, run)?;
                        of_cell.entry(run.cell.clone()).or_insert(new)
                    }
                };
                let deterministic = boot.virtual_time;
                let draw = draw(experiment, boot);
                let names = Names {
                    identity: ingredients.identity(draw).map_err(unnamed)?,
                    setting: ingredients.setting().map_err(unnamed)?,
                    deterministic,
                };
                plan.settings.entry(names.setting.clone()).or_insert_with(|| ingredients.clone());
                plan.names.insert(run.run, names);
            }
        }
        Ok(plan)
    }

    /// Removes all boots and runs that are not selected. The names remain complete.
    ///
    /// # Errors
    /// [`LabError::NotPlanned`] if a number is beyond the plan.
    pub fn select(&mut self, runs: Selection) -> Result<(), LabError> {
        select(&mut self.boots, self.names.len() as u64, runs)
    }

    /// Returns each run's number by its identity.
    pub fn numbers(&self) -> BTreeMap<Identity, u64> {
        self.names.iter().map(|(run, names)| (names.identity.clone(), *run)).collect()
    }

    /// Returns whether a finished run never needs to be repeated.
    pub fn is_deterministic(&self, run: u64) -> bool {
        self.names.get(&run).is_some_and(|names| names.deterministic)
    }

    /// Returns the identity of a planned run.
    pub fn identity_of(&self, run: u64) -> Result<&Identity, LabError> {
        let names = self.names.get(&run);
        names
            .map(|names| &names.identity)
            .ok_or_else(|| LabError::Unnamed { detail: format!("run {run} is not planned") })
    }

    /// Returns the identity of the whole plan.
    pub fn identity(&self) -> Result<Identity, LabError> {
        let all: Vec<&Identity> = self.names.values().map(|names| &names.identity).collect();
        Identity::of(&all).map_err(unnamed)
    }
}

/// Removes all boots and runs that are not selected. `planned` is the number of all runs.
pub(super) fn select(
    boots: &mut Vec<PlannedBoot>,
    planned: u64,
    runs: Selection,
) -> Result<(), LabError> {
    match runs {
        Selection::Range(_, last) if last >= planned => {
            return Err(LabError::NotPlanned { last, planned });
        }
        _ => {}
    }
    for boot in boots.iter_mut() {
        boot.runs.retain(|run| runs.contains(run.run));
    }
    boots.retain(|boot| !boot.runs.is_empty());
    Ok(())
}

/// Returns the seed or repeat that distinguishes a block's runs from those of other blocks.
pub fn draw(experiment: &Experiment, boot: &PlannedBoot) -> Draw {
    match boot.virtual_time {
        true => Draw::Seed(specs::seed(experiment, boot.block)),
        false => Draw::Repeat(boot.block),
    }
}

fn unnamed(error: serde_json::Error) -> LabError {
    LabError::Unnamed { detail: error.to_string() }
}

/// Collects the ingredients of runs.
struct Recipe<'a> {
    experiment: &'a Experiment,
    prepared: &'a Prepared,
    host: Host,
    files: FileDigests,
    programs: HashMap<String, Identity>,
}

impl<'a> Recipe<'a> {
    fn new(experiment: &'a Experiment, prepared: &'a Prepared) -> Result<Recipe<'a>, LabError> {
        let machine = machine::describe("");
        let own = std::env::var_os("UNSPIN_QEMU")
            .and_then(|_| find_program(&qemu_program().to_string_lossy()));
        let mut files = FileDigests::default();
        let qemu = qemu(machine.qemu, own.as_deref(), &mut files)?;
        let host = Host { cpu: machine.cpu, kernel: machine.kernel, qemu };
        Ok(Recipe { experiment, prepared, host, files, programs: HashMap::new() })
    }

    fn ingredients(
        &mut self,
        boot: &PlannedBoot,
        run: &PlannedRun,
    ) -> Result<Ingredients, LabError> {
        let (experiment, prepared) = (self.experiment, self.prepared);
        let topology = &experiment.topologies[boot.topology];
        let workload = &experiment.workloads[run.workload];
        let l1 = (topology.nested.is_some() && prepared.l1.is_some()).then_some(topology);
        let mut machines = specs::boot(experiment, prepared, boot)?;
        let confidential = machines.virtual_host.as_ref().is_some_and(|host| host.cvm.is_some());
        let igvm = machines.vms.first().filter(|_| confidential).map(cvm::without_initramfs);
        let igvm = igvm.transpose()?;
        machines.vms.iter_mut().for_each(forget_paths);
        if let Some(l1) = &mut machines.l1 {
            forget_paths(&mut l1.vm);
            l1.block = 0;
        }
        if let Some(host) = &mut machines.virtual_host {
            // The seed belongs to the draw, not to the setting.
            host.seed = 0;
        }
        let VirtualTime { qemu, prices } = &prepared.virtual_time;
        if boot.virtual_time && (qemu.is_empty() || prices.is_empty()) {
            // Without these digests, runs under other prices would get the same identity.
            let detail = "virtual time needs the digests of QEMU and of the prices".to_owned();
            return Err(LabError::Unnamed { detail });
        }
        let job = specs::run(experiment, prepared, boot, run);
        let arguments = Identity::of(&arguments(&machines, &job)).map_err(unnamed)?;
        let mut machines = serde_json::to_value(machines).map_err(unnamed)?;
        machines["arguments"] = json!(arguments);
        if let Some(igvm) = igvm {
            machines["igvm"] = json!(igvm);
        }
        Ok(Ingredients {
            cell: run.cell.clone(),
            accel: prepared.accel_of(topology),
            kernels: self.kernels(boot, l1.is_some())?,
            machines,
            run: serde_json::to_value(job).map_err(unnamed)?,
            reading: json!({
                "subject": workload.reading(),
                "neighbours": parts::neighbours(topology).map(Workload::reading).collect::<Vec<_>>(),
            }),
            programs: self.programs(boot, run, l1.is_some())?,
            fresh_boots: experiment.fresh_boots || boot.virtual_time,
            host: (!boot.virtual_time).then(|| self.host.clone()),
            virtual_time: boot.virtual_time.then(|| prepared.virtual_time.clone()),
        })
    }

    fn kernels(
        &mut self,
        boot: &PlannedBoot,
        nested: bool,
    ) -> Result<BTreeMap<String, String>, LabError> {
        // The id of a distribution's kernel is only its release, which several builds can share.
        let mut name = |kernel: &Kernel| -> Result<String, LabError> {
            Ok(format!("{} {}", kernel.id, self.files.of(&kernel.image)?))
        };
        let subject = name(&self.prepared.guests[boot.kernel].kernel)?;
        let mut kernels = BTreeMap::from([("subject".to_owned(), subject)]);
        if let Some(l1) = self.prepared.l1.as_ref().filter(|_| nested) {
            kernels.insert("l1".to_owned(), name(&l1.kernel)?);
        }
        Ok(kernels)
    }

    fn programs(
        &mut self,
        boot: &PlannedBoot,
        run: &PlannedRun,
        nested: bool,
    ) -> Result<BTreeMap<String, String>, LabError> {
        let (experiment, prepared) = (self.experiment, self.prepared);
        let guest = &prepared.guests[boot.kernel];
        let mut found = BTreeMap::new();
        let mut add = |name: &str, digest: Identity| {
            found.insert(name.to_owned(), digest.to_string());
        };
        add("init", self.digest("init", || prepared.own.init())?);
        let name = format!("guest {}", guest.kernel.id);
        add("guest", self.digest(&name, || Image::base(&guest.kernel))?);
        if let Some(l1) = prepared.l1.as_ref().filter(|_| nested) {
            add("l1", self.digest("l1", || super::prepare::l1_base(&l1.kernel))?);
        }
        for part in parts::of_run(experiment, &prepared.schedulers, boot, run) {
            let name = part.name();
            // Two schedulers may have the same name in their guests.
            let key = format!("{part:?}");
            add(&name, self.digest(&key, || part.image(&prepared.own))?);
        }
        Ok(found)
    }

    /// Returns the digest of an image. The image is made only once per key.
    fn digest(
        &mut self,
        key: &str,
        image: impl FnOnce() -> Result<Image, ImageError>,
    ) -> Result<Identity, LabError> {
        if let Some(known) = self.programs.get(key) {
            return Ok(known.clone());
        }
        let digest = image()?.digest(&mut self.files)?;
        self.programs.insert(key.to_owned(), digest.clone());
        Ok(digest)
    }
}

/// Returns a QEMU's version. The user's own QEMU can be rebuilt under the same version, so the
/// digest of its content is added.
fn qemu(
    version: String,
    own: Option<&Path>,
    files: &mut FileDigests,
) -> Result<String, ImageError> {
    match own {
        Some(program) => Ok(format!("{version} {}", files.of(program)?)),
        None => Ok(version),
    }
}

/// Returns QEMU's arguments and the kernel's parameters. Some of them are in no specification but
/// decide the result, too.
fn arguments(machines: &BootSpec, job: &RunSpec) -> Vec<String> {
    let l1 = machines.l1.iter().map(|l1| &l1.vm);
    let of = |vm: &VmSpec| match &machines.virtual_host {
        Some(host) => {
            let mut args = virtual_args(vm, host, job.injection.as_ref(), &[]);
            args.push(kernel_params(vm));
            args
        }
        None => qemu_args(vm),
    };
    machines.vms.iter().chain(l1).flat_map(of).collect()
}

/// Clears the paths of kernel and initramfs. The identity contains their content instead.
fn forget_paths(vm: &mut VmSpec) {
    vm.kernel.clear();
    vm.initramfs.clear();
}

#[cfg(test)]
#[path = "identity_tests.rs"]
pub(super) mod tests;
