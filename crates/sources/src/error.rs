//! Errors that kernels and QEMU share.

use std::io;
use std::path::{Path, PathBuf};

use unspin_model::class::{Class, Classified};

/// The reason why a source could not be fetched, verified, patched or built. Each message names the
/// next step.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    /// A file operation failed.
    #[error("cannot {what} {path}")]
    Io {
        /// The operation, as a verb phrase.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The description of a cache entry does not parse.
    #[error("{path} is damaged: remove its folder and build or fetch it again")]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The parser's reason.
        source: serde_json::Error,
    },
    /// Programs or headers that the work needs are not installed.
    #[error(
        "missing to {purpose}: {}; install with: apt install {}",
        .missing.join(", "),
        .packages.join(" ")
    )]
    Missing {
        /// The work that needs them, as a verb phrase.
        purpose: &'static str,
        /// The missing programs and headers.
        missing: Vec<&'static str>,
        /// The packages that contain them.
        packages: Vec<&'static str>,
    },
    /// The file system of the cache is nearly full.
    #[error(
        "{} MiB are free at {path}, {} MiB are needed; free some, or point UNSPIN_CACHE elsewhere",
        .free >> 20,
        .needed >> 20
    )]
    Space {
        /// The folder that needs the space.
        path: PathBuf,
        /// Free space, in bytes.
        free: u64,
        /// Peak space of the work, in bytes.
        needed: u64,
    },
    /// make and QEMU's configure cannot build in this folder.
    #[error(
        "make and QEMU's configure refuse the blank or colon in {0}; use another folder, or point \
         UNSPIN_CACHE to one"
    )]
    Blank(PathBuf),
    /// The archive's signatures cannot be checked.
    #[error("no Debian archive keyring at {0}; install with: apt install debian-archive-keyring")]
    Keyring(PathBuf),
    /// apt's lists have no suitable package.
    #[error("no package {what} in {suites}; `{log}` has what apt said")]
    NoPackage {
        /// The wanted package.
        what: String,
        /// The searched suites.
        suites: String,
        /// Path of the log with apt's output.
        log: PathBuf,
    },
    /// A program failed.
    #[error("{what} failed ({status}); the whole log: {log}\n{tail}")]
    Command {
        /// The failed step.
        what: String,
        /// The program's exit status or signal.
        status: String,
        /// Path of the log with all of its output.
        log: PathBuf,
        /// The log's last lines.
        tail: String,
    },
}

impl Classified for SourcesError {
    fn class(&self) -> Class {
        match self {
            Self::Missing { .. } | Self::Keyring(_) => Class::Unavailable,
            _ => Class::Failed,
        }
    }
}

impl SourcesError {
    /// Returns the error of a failed file operation. `what` is a verb phrase such as "create".
    pub(crate) fn io(what: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        Self::Io { what, path: path.as_ref().into(), source }
    }
}
