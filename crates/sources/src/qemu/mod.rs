//! The lab's QEMU: Debian's source package with the patches of the repository's folder
//! `qemu/`, one machine and pinned firmware.
//!
//! A built QEMU is a folder below [`cache_dir`](crate::cache_dir)`/qemu`, named by its id. It
//! contains `bin/qemu-system-x86_64` and the firmware in `share/qemu/`. Run the program with `-L`
//! and the firmware's folder.

mod entry;
mod error;
mod fetch;
mod inputs;
mod make;
mod meson;
mod recipe;
mod tree;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use entry::Build;
pub use error::QemuError;
pub use inputs::{VERSION, firmware_names};
pub use make::build;

use crate::cache::entries;
use crate::{InUse, Progress};
use entry::qemu_dir;
use inputs::Inputs;
use recipe::Recipe;

/// The source of a QEMU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Source {
    /// The pinned version, [`VERSION`]. Source and firmware have known digests.
    #[default]
    Pinned,
    /// Another version in Debian's archive, or the pinned version with the archive's current
    /// firmware. apt checks the signatures; the digests are not pinned.
    Version(String),
}

impl Source {
    /// Returns the version of the source package.
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
    /// The name of the folder in the cache, such as `qemu-10.0.13-1a2b3c4d`. It also depends on the
    /// compiler.
    pub id: String,
    /// Digest of all ingredients that affect a guest: source, patches, headers, devices, options
    /// and firmware, but not the compiler. The identity of a result includes it.
    pub behaviour: String,
    /// The version of Debian's source package.
    pub version: String,
    /// The path of the executable.
    pub program: PathBuf,
    /// The folder of the firmware, for `-L`.
    pub firmware: PathBuf,
    /// Name and version of the source package.
    pub source: String,
}

/// Returns all QEMUs in the cache, the most recently made first.
///
/// # Errors
/// If the cache exists and cannot be read.
pub fn list() -> Result<Vec<Qemu>, QemuError> {
    Ok(builds()?.into_iter().map(|build| build.qemu).collect())
}

/// Returns all QEMUs in the cache, with their ingredients.
///
/// # Errors
/// The errors of [`list`].
pub fn builds() -> Result<Vec<Build>, QemuError> {
    Ok(entries(&qemu_dir())?)
}

/// Returns the QEMU of `source` if the cache has it. If it returns `None`, [`ensure`] has to build
/// the QEMU. A QEMU matches only if its patches, headers, devices and options are those of this
/// program.
///
/// # Errors
/// The errors of [`list`].
pub fn resolve(source: &Source) -> Result<Option<Qemu>, QemuError> {
    Ok(matching(builds()?, source, &Recipe::shipped()))
}

/// Returns the QEMU of `source`, and the right to use it. Builds it if the cache lacks it.
///
/// # Errors
/// Returns those of [`resolve`] and [`build`], and an error if the cache cannot be locked.
pub fn ensure(
    source: &Source,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Qemu, InUse), QemuError> {
    loop {
        let qemu = match resolve(source)? {
            Some(qemu) => qemu,
            None => build(source, None, None, progress)?,
        };
        let folder = qemu.program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        // If it has gone since it was found, another one has come.
        if let Some(in_use) = InUse::of::<Build>(folder)? {
            return Ok((qemu, in_use));
        }
    }
}

/// Returns the first of `builds` with this source and recipe.
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
