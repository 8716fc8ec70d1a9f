//! Carries out an experiment: prepares kernels and images, boots, runs, records.

mod executor;
mod prepare;
mod progress;
mod record;
mod specs;
mod store;
mod timings;

use std::path::PathBuf;

use thiserror::Error;
use unspin_model::Accel;
use unspin_sources::kernel::KernelError;

pub use executor::execute;
pub use prepare::Prepared;
pub use progress::{Bar, Event, Progress, duration};
pub use store::{Loaded, Store, load};
pub use timings::Timings;

use crate::image::ImageError;
use crate::toml_error::ConfigError;
use crate::wire::Failure;

/// How an experiment is carried out.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where results go.
    pub out: PathBuf,
    /// The accelerator to use, whatever works here.
    pub accel: Option<Accel>,
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
#[derive(Debug, Error)]
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
    /// The output folder holds something else.
    #[error(
        "{out}: holds the results of another experiment or of another version of it; choose another folder with --out, or remove it"
    )]
    OtherExperiment {
        /// The folder.
        out: PathBuf,
    },
    /// Results could not be written.
    #[error(
        "{path}: {source}; what was finished before is safe: make room, then run the same command again to go on"
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
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
