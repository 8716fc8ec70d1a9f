//! The lab's QEMU: Debian's source package with the patches of the repository's folder
//! `qemu/`, one machine and pinned firmware.
//!
//! A built QEMU is a folder below [`cache_dir`](crate::cache_dir)`/qemu` named by its id:
//! `bin/qemu-system-x86_64` and `share/qemu/`, the firmware. Run it with `-L` and the
//! firmware's folder.

mod entry;
mod error;
mod fetch;
mod inputs;
mod make;
mod meson;
mod recipe;
mod tree;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use entry::Build;
pub use error::QemuError;
pub use inputs::{VERSION, firmware_names};
pub use make::build;

use crate::Progress;
use crate::cache::entries;
use entry::qemu_dir;
use inputs::Inputs;
use recipe::Recipe;

/// Which source a QEMU is built from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Source {
    /// The pinned version, [`VERSION`]: source and firmware have known digests.
    #[default]
    Pinned,
    /// Another version of Debian's archive, or the pinned one with the firmware that the
    /// archive has now. apt checks the signatures; the digests are whatever is found.
    Version(String),
}

impl Source {
    /// The version of the source package.
    pub fn version(&self) -> &str {
        match self {
            Self::Pinned => VERSION,
            Self::Version(version) => version,
        }
    }
}

/// A QEMU that boots guests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qemu {
    /// Names the folder in the cache, such as `qemu-10.0.13-1a2b3c4d`. Differs also by
    /// compiler.
    pub id: String,
    /// Stands for all that decides what a guest sees: source, patches, headers, devices,
    /// options and firmware, but not the compiler. The identity of a result has this.
    pub behaviour: String,
    /// The version of Debian's source package.
    pub version: String,
    /// The executable.
    pub program: PathBuf,
    /// The folder of the firmware, for `-L`.
    pub firmware: PathBuf,
    /// Source package and version.
    pub source: String,
}

/// All QEMUs in the cache, the newest made first.
///
/// # Errors
/// When the cache exists and cannot be read.
pub fn list() -> Result<Vec<Qemu>, QemuError> {
    Ok(builds()?.into_iter().map(|build| build.qemu).collect())
}

/// The same with what each was made of.
///
/// # Errors
/// Those of [`list`].
pub fn builds() -> Result<Vec<Build>, QemuError> {
    Ok(entries(&qemu_dir())?)
}

/// The QEMU of `source` if it is in the cache. `None` means that [`ensure`] would have to
/// build it. A QEMU of other patches, headers, devices or options than this program's does
/// not match.
///
/// # Errors
/// Those of [`list`].
pub fn resolve(source: &Source) -> Result<Option<Qemu>, QemuError> {
    Ok(matching(builds()?, source, &Recipe::shipped()))
}

/// The QEMU of `source`, built if it is not in the cache.
///
/// # Errors
/// Those of [`resolve`] and [`build`].
pub fn ensure(source: &Source, progress: &mut dyn FnMut(Progress)) -> Result<Qemu, QemuError> {
    match resolve(source)? {
        Some(qemu) => Ok(qemu),
        None => build(source, None, None, progress),
    }
}

/// The first of `builds` that has the source and the recipe.
fn matching(builds: Vec<Build>, source: &Source, recipe: &Recipe) -> Option<Qemu> {
    let pinned = recipe.behaviour(&Inputs::pinned());
    let digest = recipe.digest();
    let fits = |build: &Build| match source {
        Source::Pinned => build.qemu.behaviour == pinned,
        Source::Version(version) => build.qemu.version == *version && build.recipe == digest,
    };
    builds.into_iter().find(fits).map(|build| build.qemu)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
