//! Carries out experiments: prepares kernels and images, boots guests, runs jobs, records results.

mod drive;
mod executor;
mod folder;
mod identity;
mod kernels;
mod lanes;
mod outlook;
mod parts;
mod prepare;
mod progress;
mod record;
mod schedule;
mod scratch;
mod selection;
mod specs;
mod store;
mod timings;
mod verify;

use std::error::Error;
use std::io::{self, ErrorKind};
use std::iter;
use std::path::PathBuf;

use unspin_model::class::{Class, Classified};
use unspin_model::{Accel, FailureKind};
use unspin_sources::kernel::KernelError;

pub use executor::execute;
pub use folder::{Loaded, load};
pub use identity::{Names, Plan};
pub use outlook::{Outlook, expected, look_ahead};
pub use prepare::Prepared;
pub use progress::{Bar, Event, Progress, duration};
pub use selection::Selection;
pub use store::Store;
use timings::Timings;
pub use verify::{Comparison, NotIdentical, Published};

use unspin_wire::Failure;

use crate::experiment::Experiment;
use crate::image::ImageError;
use crate::toml_error::ConfigError;

/// Options for carrying out an experiment.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Output folder.
    pub out: PathBuf,
    /// Whether to measure everything in a new folder below `out`.
    pub fresh: bool,
    /// The accelerator to use, whichever accelerators work here.
    pub accel: Option<Accel>,
    /// Number of parallel runs in virtual time. If absent, CPUs and memory decide.
    pub jobs: Option<u32>,
    /// Whether to carry out each run in virtual time twice and to require the same bytes.
    pub twice: bool,
    /// Folders from which finished runs in virtual time are taken over.
    pub reuse: Vec<PathBuf>,
    /// The planned runs to carry out. The folder's plan contains the others, too.
    pub runs: Selection,
    /// The commit that unspin was built from.
    pub commit: String,
}

impl Options {
    /// Returns the folders from which finished runs are taken over. There are none if each run must
    /// be carried out twice.
    fn taken_over_from(&self) -> &[PathBuf] {
        if self.twice { &[] } else { &self.reuse }
    }

    /// Returns the output folder of a plan. A new folder is named after the plan. A folder of that
    /// name with an interrupted experiment is resumed.
    fn folder(&self, experiment: &Experiment, plan: &Plan) -> Result<PathBuf, LabError> {
        if !self.fresh {
            return Ok(self.out.clone());
        }
        let name = format!("{}-{}", experiment.name, plan.identity()?);
        let mut number = 1;
        loop {
            let folder = self.out.join(format!("{name}-{number}"));
            if !folder::read_meta(&folder)?.is_some_and(|meta| meta.complete) {
                return Ok(folder);
            }
            number += 1;
        }
    }
}

/// The end of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// Every run has a result or has failed for good.
    Complete,
    /// Ctrl-C. The finished runs are kept.
    Interrupted,
}

/// An error that ends an experiment.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A kernel is not available.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// An initramfs cannot be made.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The topology asks for a resource that this machine lacks.
    #[error(transparent)]
    Topology(#[from] ConfigError),
    /// Two kernels have the same id.
    #[error(
        "{} and {} are both kernel {id}: build one of them with another CONFIG_LOCALVERSION, or \
         give each an experiment of its own", images[0].display(), images[1].display()
    )]
    OneId {
        /// The id.
        id: String,
        /// Paths of both kernel images.
        images: [PathBuf; 2],
    },
    /// Two programs have the same path in a guest.
    #[error(
        "{} and {} would both be {} in a guest, which can hold one of them: rename one, or give \
         each an experiment of its own", programs[0].display(), programs[1].display(),
        place.display()
    )]
    OnePlace {
        /// The path in the guest.
        place: PathBuf,
        /// The programs' paths on this machine.
        programs: [PathBuf; 2],
    },
    /// A program that the lab itself needs is missing.
    #[error("{program} is not installed: run `apt install {package}`")]
    Missing {
        /// The program.
        program: &'static str,
        /// Its Debian package.
        package: &'static str,
    },
    /// A guest scheduler's command could not be installed.
    #[error("guest scheduler `{name}`: {detail}")]
    Scheduler {
        /// Name of the scheduler.
        name: String,
        /// Cause of the failure.
        detail: String,
    },
    /// A run's identity could not be written as JSON.
    #[error("the identity of the runs: {detail}")]
    Unnamed {
        /// Cause of the failure.
        detail: String,
    },
    /// A requested run number is beyond the plan.
    #[error("run {last} is not planned: the experiment has {planned} runs, from 0 on")]
    NotPlanned {
        /// The highest requested number.
        last: u64,
        /// Number of planned runs.
        planned: u64,
    },
    /// Results could not be written.
    #[error("cannot write {path}{}", next(source))]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The folder holds the results of another experiment.
    #[error(
        "{} holds the results of experiment `{holds}`, not of `{wanted}`: name another folder \
         with `--out`, or remove this one", out.display()
    )]
    OtherExperiment {
        /// The folder.
        out: PathBuf,
        /// Name of the experiment whose results are in the folder.
        holds: String,
        /// Name of the experiment to carry out.
        wanted: String,
    },
    /// Runs that must be carried out twice already have results, so they would be skipped.
    #[error(
        "{} already has results of runs that `--twice` is to carry out: name another folder with \
         `--out`", out.display()
    )]
    HasResults {
        /// The folder.
        out: PathBuf,
    },
    /// Ctrl-C before the first run.
    #[error("interrupted before the first run: the same command begins again")]
    Interrupted,
    /// Results could not be read.
    #[error("{path}:{} {detail}", if *line > 0 { format!("{line}:") } else { String::new() })]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Line from 1; 0 for an error about the file as a whole.
        line: usize,
        /// Description of the error.
        detail: String,
    },
    /// The host failed.
    #[error(transparent)]
    Host(#[from] Failure),
}

/// Returns a remedy for a write error, or an empty text. A full disk can be an indirect cause.
fn next(error: &io::Error) -> &'static str {
    let causes = iter::successors(Some(error as &(dyn Error + 'static)), |one| (*one).source());
    let mut kinds = causes.filter_map(|one| one.downcast_ref::<io::Error>()).map(io::Error::kind);
    match kinds.any(|kind| matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)) {
        true => {
            "; what was finished before is safe: make room, then run the same command again to \
             go on"
        }
        false => "",
    }
}

impl Classified for LabError {
    fn class(&self) -> Class {
        match self {
            LabError::Kernel(error) => error.class(),
            LabError::Topology(error) => error.class(),
            LabError::Image(_) | LabError::Missing { .. } => Class::Unavailable,
            LabError::NotPlanned { .. }
            | LabError::OtherExperiment { .. }
            | LabError::OneId { .. }
            | LabError::OnePlace { .. }
            | LabError::HasResults { .. } => Class::Usage,
            LabError::Interrupted => Class::Interrupted,
            LabError::Host(failure) if failure.kind == FailureKind::Unavailable => {
                Class::Unavailable
            }
            _ => Class::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_and_a_folder_with_results_have_their_class() {
        assert_eq!(LabError::Interrupted.class(), Class::Interrupted);
        let has_results = LabError::HasResults { out: "out/x".into() };
        assert_eq!(has_results.class(), Class::Usage);
        assert!(has_results.to_string().starts_with("out/x already has results"));
    }

    #[test]
    fn what_runs_twice_is_not_taken_over() {
        let once = Options { reuse: vec!["results/x".into()], ..Options::default() };
        assert_eq!(once.taken_over_from(), ["results/x"].map(PathBuf::from));
        assert!(Options { twice: true, ..once }.taken_over_from().is_empty());
    }

    #[test]
    fn only_a_full_disk_asks_for_room() {
        let text = |source: io::Error| {
            LabError::Write { path: PathBuf::from("out/x"), source }.to_string()
        };
        for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
            assert!(text(kind.into()).contains("make room"), "{kind}");
        }
        let within = unspin_trace::TraceError::Write(ErrorKind::StorageFull.into());
        assert!(text(io::Error::other(within)).contains("make room"));
        assert_eq!(text(ErrorKind::NotADirectory.into()), "cannot write out/x");
    }
}
