//! What can go wrong on the way to a QEMU, and what to do about it.

use unspin_model::class::{Class, Classified};

use crate::SourcesError;

/// Only the pinned source is used unasked.
const NAME_IT: &str = "then set UNSPIN_VT_QEMU to the path that it prints as `program`";

/// Why there is no QEMU. Each message names the next step.
#[derive(Debug, thiserror::Error)]
pub enum QemuError {
    /// A step that all customers share failed.
    #[error(transparent)]
    Sources(#[from] SourcesError),
    /// The archive replaced a version.
    #[error(
        "Debian's archive has no {package} {wanted}, but {available}; to use what it has, \
         run: unspin lab qemu build --source-version {instead}; {}",
        NAME_IT
    )]
    Gone {
        /// The package.
        package: String,
        /// Its version that was looked for.
        wanted: String,
        /// The versions that the archive has.
        available: String,
        /// The source version to give on the command line.
        instead: String,
    },
    /// A fetched file differs from the pinned one.
    #[error(
        "{file} of qemu {version}, as Debian's archive has it, has SHA-256 {found}, not the \
         pinned {expected}; to use it all the same, \
         run: unspin lab qemu build --source-version {version}; {}",
        NAME_IT
    )]
    Changed {
        /// The file.
        file: String,
        /// Its pinned digest.
        expected: String,
        /// Its digest.
        found: String,
        /// The version of the source package.
        version: String,
    },
    /// A file is missing in a package.
    #[error("{package} has no file {file}: this version is packaged differently")]
    Layout {
        /// The package.
        package: String,
        /// What was looked for.
        file: String,
    },
}

impl Classified for QemuError {
    fn class(&self) -> Class {
        match self {
            Self::Sources(error) => error.class(),
            _ => Class::Failed,
        }
    }
}
