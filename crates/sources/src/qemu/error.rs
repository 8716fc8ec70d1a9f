//! Errors of obtaining a QEMU.

use unspin_model::class::{Class, Classified};

use crate::SourcesError;

/// The advice for an unpinned QEMU. The lab uses only the pinned one by default.
const NAME_IT: &str = "then set UNSPIN_VT_QEMU to the path that it prints as `program`";

/// The reason why no QEMU could be obtained. Each message names the next step.
#[derive(Debug, thiserror::Error)]
pub enum QemuError {
    /// A step that kernels and QEMU share failed.
    #[error(transparent)]
    Sources(#[from] SourcesError),
    /// The archive replaced the wanted version of a package.
    #[error(
        "Debian's archive has no {package} {wanted}, but {available}; to use what it has, \
         run: unspin lab qemu build --source-version {instead}; {}",
        NAME_IT
    )]
    Gone {
        /// The package.
        package: String,
        /// The wanted version.
        wanted: String,
        /// The versions in the archive.
        available: String,
        /// The source version for the command line.
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
        /// Digest of the fetched file.
        found: String,
        /// The version of the source package.
        version: String,
    },
    /// A package lacks a file.
    #[error("{package} has no file {file}: this version is packaged differently")]
    Layout {
        /// The package.
        package: String,
        /// The missing file.
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
