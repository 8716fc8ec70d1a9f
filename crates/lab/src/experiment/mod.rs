//! Experiments: the matrix of cells, as a TOML file says it.

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

/// A checked experiment.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Its name; names the default output folder.
    pub name: String,
    /// Its title in the report.
    pub title: String,
    /// What it asks.
    pub about: String,
    /// How often each cell is run.
    pub repeats: u32,
    /// Seed of the order of runs.
    pub seed: u64,
    /// Overrides every workload's own time limit, seconds.
    pub time_limit_s: Option<f64>,
    /// Seconds that a guest may take to come up, instead of the lab's own limit.
    pub boot_limit_s: Option<f64>,
    /// The guest scheduler that others are compared with.
    pub baseline_scheduler: String,
    /// The topology that others are compared with.
    pub baseline_topology: Option<String>,
    /// Smaller effects are not reported as different; a share.
    pub smallest_effect: f64,
    /// How the ground truth is observed.
    pub truth: TruthMode,
    /// Whether each run's on/off/idle history is kept in `OUT/truth`.
    pub keep_recordings: bool,
    /// Whether each run's record says how long vCPUs waited for a pCPU.
    pub keep_latencies: bool,
    /// A boot for each run instead of one for a block of them.
    pub fresh_boots: bool,
    /// Kernel specs, such as `lab` or `debian-cloud`.
    pub kernels: Vec<String>,
    /// Boot parameters to compare; one empty entry when there is nothing to compare.
    pub boot_params: Vec<String>,
    /// Guest schedulers.
    pub schedulers: Vec<Scheduler>,
    /// Workloads, neighbours' ones not included.
    pub workloads: Vec<Workload>,
    /// Topologies.
    pub topologies: Vec<Topology>,
    /// The file that it came from.
    pub file: PathBuf,
    /// The file's text, which errors point into.
    pub text: String,
}

/// `HOST_PCPUS_MAX` in `policy/host/config.h`.
const SIMULATED_PCPUS_MAX: u32 = 96;

/// Names that are less alike than this are not taken for a slip of the pen (Jaro-Winkler).
const ALIKE: f64 = 0.85;

/// What to do about a name that no shipped experiment has.
fn no_such(name: &str) -> String {
    let alike = |shipped: &&str| strsim::jaro_winkler(shipped, name);
    let nearest = Experiment::builtin_names().max_by(|a, b| alike(a).total_cmp(&alike(b)));
    let meant = nearest.filter(|shipped| alike(shipped) >= ALIKE);
    let meant = meant.map(|shipped| format!(" Is it `{shipped}`?")).unwrap_or_default();
    format!("no such experiment.{meant} `unspin lab list` shows the shipped ones; or give a file")
}

impl Experiment {
    /// Reads a file, or a shipped experiment by its name.
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

    /// Names of the shipped experiments.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        shipped::names(&EXPERIMENTS)
    }

    /// Reads the text of an experiment's file.
    pub fn parse(path: &Path, text: &str) -> Result<Experiment, ConfigError> {
        file::check(toml_error::parse(path, text)?, path, text)
    }

    /// What the summary says of it.
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

    /// Checks that a machine with these CPUs has the pCPUs that each topology
    /// asks for, and that an injector takes one that a vCPU is held to; names the line.
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
    /// The place in the file that keeps a topology from it, and what to write instead.
    pub fn force_accel(&mut self, accel: Accel) -> Result<(), ConfigError> {
        for topology in &mut self.topologies {
            topology.accel = Some(accel);
        }
        self.check_accel()
    }

    /// The accelerator that its topologies ask for where time is real; all share one.
    pub fn real_accel(&self) -> Option<Accel> {
        self.topologies.iter().filter_map(|topology| topology.accel).find(|a| *a != Accel::Vt)
    }

    /// Checks that each topology can run under the accelerator that it asks for.
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

    /// The guest schedulers that make sense in a topology: a `hold:K` needs
    /// fewer than all vCPUs.
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
