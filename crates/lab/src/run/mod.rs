//! Carries out an experiment: prepares kernels and images, boots, runs, records.

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

/// How an experiment is carried out.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where results go.
    pub out: PathBuf,
    /// Whether to make a new folder below `out` for them, so that everything is measured.
    pub fresh: bool,
    /// The accelerator to use, whatever works here.
    pub accel: Option<Accel>,
    /// Runs in virtual time at once; as many as the machine has CPUs and memory for when absent.
    pub jobs: Option<u32>,
    /// Whether each run in virtual time is carried out twice and must give the same bytes.
    pub twice: bool,
    /// Folders whose finished runs in virtual time are taken over.
    pub reuse: Vec<PathBuf>,
    /// The planned runs to carry out. The folder's plan holds the others, too.
    pub runs: Selection,
    /// The commit that unspin was built from.
    pub commit: String,
}

impl Options {
    /// Folders that finished runs are taken over from: none where each run is to be carried out
    /// twice.
    fn taken_over_from(&self) -> &[PathBuf] {
        if self.twice { &[] } else { &self.reuse }
    }

    /// The output folder of a plan. A new one is named by the plan; one of that name whose
    /// runs were interrupted is resumed.
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

/// How an experiment ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// Every run has a result or failed for good.
    Complete,
    /// Ctrl-C: what is finished is kept.
    Interrupted,
}

/// Why an experiment cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A kernel is not to be had.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// An initramfs cannot be made.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The topology asks for what this machine has not.
    #[error(transparent)]
    Topology(#[from] ConfigError),
    /// Two kernels are called alike.
    #[error(
        "{} and {} are both kernel {id}: build one of them with another CONFIG_LOCALVERSION, or \
         give each an experiment of its own", images[0].display(), images[1].display()
    )]
    OneId {
        /// What both are called.
        id: String,
        /// Their images.
        images: [PathBuf; 2],
    },
    /// Two programs have one place in a guest.
    #[error(
        "{} and {} would both be {} in a guest, which can hold one of them: rename one, or give \
         each an experiment of its own", programs[0].display(), programs[1].display(),
        place.display()
    )]
    OnePlace {
        /// The place.
        place: PathBuf,
        /// The programs on this machine.
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
        /// Its name.
        name: String,
        /// Why.
        detail: String,
    },
    /// A run's identity could not be written as JSON.
    #[error("the identity of the runs: {detail}")]
    Unnamed {
        /// Why.
        detail: String,
    },
    /// No planned run has a number that was asked for.
    #[error("run {last} is not planned: the experiment has {planned} runs, from 0 on")]
    NotPlanned {
        /// The last number asked for.
        last: u64,
        /// How many runs there are.
        planned: u64,
    },
    /// Results could not be written.
    #[error("cannot write {path}{}", next(source))]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
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
        /// The experiment whose results are there.
        holds: String,
        /// The experiment to carry out.
        wanted: String,
    },
    /// Runs that are to be carried out twice have their result, so that they would not run.
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
        /// The file.
        path: PathBuf,
        /// The line, from 1; 0 for the file as a whole.
        line: usize,
        /// What is wrong.
        detail: String,
    },
    /// The host could not do it.
    #[error(transparent)]
    Host(#[from] Failure),
}

/// What to do about a file that cannot be written. A full disk may be the cause of a cause.
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
