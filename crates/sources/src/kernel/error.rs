//! What can go wrong on the way to a kernel, and what to do about it.

use std::path::PathBuf;

use unspin_model::class::{Class, Classified};

use crate::SourcesError;

/// Why there is no kernel. Each message says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A step that all customers share failed.
    #[error(transparent)]
    Sources(#[from] SourcesError),
    /// The text is not a kernel spec.
    #[error(
        "`{0}` does not name a kernel: give lab, lab-cvm, lab-es, lab:linux-source-VERSION, \
         lab:/path/to/source, debian-cloud, debian-cloud:bookworm, debian-cloud:trixie or the path of a bzImage"
    )]
    Spec(String),
    /// The file is not a bzImage.
    #[error("{path} is not a bzImage: {why}")]
    NotBzImage {
        /// The file.
        path: PathBuf,
        /// What is missing in it.
        why: &'static str,
    },
    /// A kernel was fetched and lacks what it is for.
    #[error("none of the newest Debian cloud kernels ({0}) has CONFIG_SCHED_CLASS_EXT=y")]
    NoSchedExt(String),
    /// Options of the fragments did not make it into the configuration.
    #[error(
        "the kernel's configuration lacks {}: an option that it depends on is off or was renamed",
        .0.join(", ")
    )]
    Options(Vec<String>),
}

impl Classified for KernelError {
    fn class(&self) -> Class {
        match self {
            Self::Sources(error) => error.class(),
            Self::Spec(_) | Self::NotBzImage { .. } => Class::Usage,
            Self::NoSchedExt(_) | Self::Options(_) => Class::Failed,
        }
    }
}
