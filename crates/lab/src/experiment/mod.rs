//! Experiments: matrices of cells that TOML files describe.

mod asked;
mod bounds;
pub mod claims;
mod cpu_limits;
mod file;
#[cfg(test)]
mod hostile_tests;
mod neighbour;
mod plan;
mod scheduler;
mod simulated;
mod topology;

use std::path::{Path, PathBuf};

use unspin_model::Accel;
use unspin_model::summary::ExperimentInfo;

pub use plan::{PlannedBoot, PlannedRun, plan};
pub use scheduler::{Command, Scheduler};
pub use simulated::Simulated;
pub use topology::{Neighbour, Nested, Pcpus, Refusals, Spinlock, Topology};

use unspin_wire::TruthMode;

use crate::shipped::{self, EXPERIMENTS};
use crate::toml_error::{self, ConfigError};
use crate::workload::Workload;

/// An experiment whose file has been checked.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Name of the experiment and of its default output folder.
    pub name: String,
    /// Title of the experiment in the report.
    pub title: String,
    /// The question that the experiment answers.
    pub about: String,
    /// Number of runs of each cell.
    pub repeats: u32,
    /// Seed of the random order of runs.
    pub seed: u64,
    /// Time limit in seconds that replaces the limit of every workload.
    pub time_limit_s: Option<f64>,
    /// Seconds that a guest may take to boot, in place of the lab's limit.
    pub boot_limit_s: Option<f64>,
    /// The guest scheduler with which the others are compared.
    pub baseline_scheduler: String,
    /// The topology with which the others are compared.
    pub baseline_topology: Option<String>,
    /// Share below which an effect is not reported as a difference.
    pub smallest_effect: f64,
    /// Method of observing the ground truth.
    pub truth: TruthMode,
    /// Whether `OUT/truth` keeps the on/off/idle history of each run.
    pub keep_recordings: bool,
    /// Whether each run's record contains how long vCPUs waited for a pCPU.
    pub keep_latencies: bool,
    /// Whether each run has its own boot, instead of sharing one with the other runs of its block.
    pub fresh_boots: bool,
    /// Kernel specs, such as `lab` or `debian-cloud`.
    pub kernels: Vec<String>,
    /// Boot parameters to compare. If the experiment compares none, the list has one empty entry.
    pub boot_params: Vec<String>,
    /// Guest schedulers to compare.
    pub schedulers: Vec<Scheduler>,
    /// Workloads to compare, without those of neighbours.
    pub workloads: Vec<Workload>,
    /// Topologies to compare.
    pub topologies: Vec<Topology>,
    /// The experiment's file.
    pub file: PathBuf,
    /// Text of the file. Errors refer to positions in it.
    pub text: String,
}

/// Number of pCPUs that a simulated host can have: `HOST_PCPUS_MAX` in `policy/host/config.h`.
const SIMULATED_PCPUS_MAX: u32 = 96;

/// Similarity (Jaro-Winkler) from which an unknown name is taken for a typing error.
const ALIKE: f64 = 0.85;

/// Returns what the user can do about a name that no shipped experiment has.
fn no_such(name: &str) -> String {
    let alike = |shipped: &&str| strsim::jaro_winkler(shipped, name);
    let nearest = Experiment::builtin_names().max_by(|a, b| alike(a).total_cmp(&alike(b)));
    let meant = nearest.filter(|shipped| alike(shipped) >= ALIKE);
    let meant = meant.map(|shipped| format!(" Is it `{shipped}`?")).unwrap_or_default();
    format!("no such experiment.{meant} `unspin lab list` shows the shipped ones; or give a file")
}

impl Experiment {
    /// Loads a file, or a shipped experiment by its name.
    pub fn load(name_or_path: &str) -> Result<Experiment, ConfigError> {
        if let Some(text) = shipped::text(&EXPERIMENTS, name_or_path) {
            let path = PathBuf::from(format!("experiments/{name_or_path}.toml"));
            return Experiment::parse(&path, text);
        }
        let path = Path::new(name_or_path);
        if !path.exists() && !name_or_path.contains(['/', '.']) {
            return Err(ConfigError::file(path, no_such(name_or_path)));
        }
        let text = std::fs::read_to_string(path)
            .map_err(|e| ConfigError::file(path, format!("cannot read it: {e}")))?;
        Experiment::parse(path, &text)
    }

    /// Returns the names of the shipped experiments.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        shipped::names(&EXPERIMENTS)
    }

    /// Parses the text of an experiment's file.
    pub fn parse(path: &Path, text: &str) -> Result<Experiment, ConfigError> {
        file::check(toml_error::parse(path, text)?, path, text)
    }

    /// Returns the description of the experiment that a summary contains.
    pub fn info(&self) -> ExperimentInfo {
        let describe = |w: &Workload| (w.name.clone(), format!("{}: {}", w.title, w.stresses));
        ExperimentInfo {
            name: self.name.clone(),
            title: self.title.clone(),
            about: self.about.clone(),
            repeats: self.repeats,
            seed: self.seed,
            baseline_scheduler: self.baseline_scheduler.clone(),
            baseline_topology: self.baseline_topology.clone(),
            workloads: self.workloads.iter().map(describe).collect(),
            smallest_effect: self.smallest_effect,
        }
    }

    /// Checks that a machine with these CPUs has the pCPUs that each topology asks for. Also checks
    /// that an injector uses a pCPU to which a vCPU is pinned. The error names the line.
    pub fn check_pcpus(&self, allowed: &[u32]) -> Result<(), ConfigError> {
        for topology in self.topologies.iter().filter(|topology| !topology.in_virtual_time()) {
            let pcpus = &topology.pcpus;
            let resolved = pcpus.get_ref().resolve(allowed);
            let checked = resolved.and_then(|pcpus| match topology.nested {
                // An L1 numbers its CPUs itself.
                Some(_) => Ok(()),
                None => topology.check_injection(&pcpus),
            });
            checked.map_err(|message| {
                ConfigError::at(&self.file, &self.text, pcpus.span(), message)
            })?;
        }
        Ok(())
    }

    /// Makes every topology run under one accelerator.
    ///
    /// # Errors
    /// The place in the file that rules out this accelerator for a topology, and the remedy.
    pub fn force_accel(&mut self, accel: Accel) -> Result<(), ConfigError> {
        for topology in &mut self.topologies {
            topology.accel = Some(accel);
        }
        self.check_accel()
    }

    /// Returns the accelerator of the topologies in real time. All of them share one.
    pub fn real_accel(&self) -> Option<Accel> {
        self.topologies.iter().filter_map(|topology| topology.accel).find(|a| *a != Accel::Vt)
    }

    /// Checks that each topology can run under its accelerator.
    pub fn check_accel(&self) -> Result<(), ConfigError> {
        for topology in &self.topologies {
            let refusal = match topology.in_virtual_time() {
                true => &topology.refusals.virtual_time,
                false => &topology.refusals.real_time,
            };
            if let Some((at, message)) = refusal {
                return Err(ConfigError::at(&self.file, &self.text, at.clone(), message));
            }
            let pcpus = &topology.pcpus;
            if topology.in_virtual_time() && pcpus.get_ref().count() > SIMULATED_PCPUS_MAX {
                let message = format!("a simulated host has at most {SIMULATED_PCPUS_MAX} pCPUs");
                return Err(ConfigError::at(&self.file, &self.text, pcpus.span(), message));
            }
            if topology.in_virtual_time() {
                let simulated: Vec<u32> = (0..pcpus.get_ref().count()).collect();
                topology.check_injection(&simulated).map_err(|message| {
                    ConfigError::at(&self.file, &self.text, pcpus.span(), message)
                })?;
            }
        }
        Ok(())
    }

    /// Returns the guest schedulers that are usable in a topology. `hold:K` needs a guest with more
    /// than K vCPUs.
    pub fn schedulers_in(&self, topology: &Topology) -> Vec<&Scheduler> {
        let named = |s: &&Scheduler| match &topology.schedulers {
            Some(names) => names.contains(&s.name()),
            None => true,
        };
        let fits = |s: &&Scheduler| match s {
            Scheduler::Hold(vcpus) => *vcpus < topology.vcpus,
            _ => true,
        };
        self.schedulers.iter().filter(named).filter(fits).collect()
    }
}
