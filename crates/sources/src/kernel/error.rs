//! Errors of obtaining a kernel.

use std::path::PathBuf;

use unspin_model::class::{Class, Classified};

use crate::SourcesError;

/// The reason why no kernel could be obtained. Each message names the next step.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A step that kernels and QEMU share failed.
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
        /// The part that the file lacks.
        why: &'static str,
    },
    /// None of the fetched kernels has sched_ext.
    #[error("none of the newest Debian cloud kernels ({0}) has CONFIG_SCHED_CLASS_EXT=y")]
    NoSchedExt(String),
    /// The final configuration lacks options of the fragments.
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
