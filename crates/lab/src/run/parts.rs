//! The programs in a guest's image. Both the identity of a run and the image that it boots are made
//! from these parts, so neither can contain a program that the other lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::LabError;
use super::prepare::Installed;
use crate::experiment::{Experiment, PlannedBoot, PlannedRun, Topology};
use crate::image::{Image, ImageError, OWN_NAME, Own, find_program, path_in_guest};
use crate::workload::Workload;

/// The content of a guest's image besides its kernel's files, busybox and the init.
pub type Parts = BTreeSet<Part>;

/// A program or a path in an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The `unspin` program.
    Unspin,
    /// A program that a workload needs.
    Program {
        /// Name of the program.
        name: String,
        /// Debian packages that provide the program.
        packages: String,
    },
    /// A file or folder that a workload needs.
    Path {
        /// Its path, which is the same on this machine and in the guest.
        path: PathBuf,
        /// Debian packages that provide the path.
        packages: String,
    },
    /// The program of a guest scheduler, by its path on this machine.
    Scheduler(PathBuf),
}

impl Part {
    /// Returns the part's name in an identity. It is the same on every machine.
    pub fn name(&self) -> String {
        match self {
            Part::Unspin => OWN_NAME.to_owned(),
            Part::Program { name, .. } => name.clone(),
            Part::Path { path, .. } => path.display().to_string(),
            Part::Scheduler(program) => path_in_guest(program).display().to_string(),
        }
    }

    /// Makes an image of this part alone.
    pub fn image(&self, own: &Own) -> Result<Image, ImageError> {
        match self {
            Part::Unspin => own.unspin(),
            Part::Program { name, packages } => Image::of_program(name, packages),
            Part::Path { path, packages } => Image::of_path(path, packages),
            Part::Scheduler(program) => {
                Image::of_program(&program.display().to_string(), "the scheduler's crate")
            }
        }
    }

    /// Returns the path of the program on this machine, if the part is a program other than
    /// `unspin`.
    fn program(&self) -> Option<PathBuf> {
        match self {
            Part::Program { name, .. } => find_program(name),
            Part::Scheduler(program) => Some(program.clone()),
            Part::Unspin | Part::Path { .. } => None,
        }
    }

    fn of_workload(workload: &Workload) -> impl Iterator<Item = Part> {
        let packages = workload.packages.join(" ");
        let program = {
            let packages = packages.clone();
            move |name: &String| match name.as_str() {
                OWN_NAME => Part::Unspin,
                _ => Part::Program { name: name.clone(), packages: packages.clone() },
            }
        };
        let path =
            move |path: &PathBuf| Part::Path { path: path.clone(), packages: packages.clone() };
        workload.programs.iter().map(program).chain(workload.files.iter().map(path))
    }
}

/// Returns the parts that a run needs in its guest. Its neighbours boot the same image.
pub fn of_run(
    experiment: &Experiment,
    schedulers: &BTreeMap<String, Installed>,
    boot: &PlannedBoot,
    run: &PlannedRun,
) -> Parts {
    let topology = &experiment.topologies[boot.topology];
    let own = &experiment.workloads[run.workload];
    let workloads = [own].into_iter().chain(neighbours(topology));
    let scheduler = schedulers.get(&run.cell.scheduler).map(|installed| match &installed.program {
        Some(program) => Part::Scheduler(program.clone()),
        None => Part::Unspin,
    });
    workloads.flat_map(Part::of_workload).chain(scheduler).collect()
}

/// Returns the parts that the runs of these boots need.
pub fn of_boots<'a>(
    experiment: &Experiment,
    schedulers: &BTreeMap<String, Installed>,
    boots: impl IntoIterator<Item = &'a PlannedBoot>,
) -> Parts {
    let runs = boots.into_iter().flat_map(|boot| boot.runs.iter().map(move |run| (boot, run)));
    runs.flat_map(|(boot, run)| of_run(experiment, schedulers, boot, run)).collect()
}

/// Returns the workloads of real neighbours.
pub fn neighbours(topology: &Topology) -> impl Iterator<Item = &Workload> {
    topology.neighbours.iter().map(|neighbour| &neighbour.workload)
}

/// Rejects two programs that would have the same path in the guest, such as two versions of a guest
/// scheduler. Otherwise the runs of both would use only one of them.
pub fn each_has_its_place(parts: &Parts) -> Result<(), LabError> {
    let mut known: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for program in parts.iter().filter_map(Part::program) {
        let place = path_in_guest(&program);
        let first = known.entry(place.clone()).or_insert_with(|| program.clone());
        if real(first) != real(&program) {
            return Err(LabError::OnePlace { place, programs: [first.clone(), program] });
        }
    }
    Ok(())
}

/// Resolves symbolic links.
fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Writes the image of a guest: the base image of its kernel, the init and the parts.
pub fn write(base: Image, own: &Own, parts: &Parts, path: &Path) -> Result<(), ImageError> {
    let mut image = base;
    image.extend(own.init()?);
    for part in parts {
        image.extend(part.image(own)?);
    }
    image.write(path)
}
