//! Kernels: built from a source package with the lab's fragments and patches, or fetched from
//! Debian's archive, and cached by content.
//!
//! A cached kernel is a folder below [`cache_dir`](crate::cache_dir)`/kernels`, named by its id. It
//! appears there complete or not at all, because the work happens in a staging folder that is
//! renamed at the end.

mod bzimage;
mod cloud;
pub mod config;
mod debian_cloud;
mod entry;
mod error;
mod make;
mod obtain;
mod package;
mod recipe;
mod spec;
mod tree;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use debian_cloud::fetch_debian_cloud;
pub use error::KernelError;
pub use make::build;
pub use spec::{Cloud, Source};

use crate::cache::load;
use crate::{InUse, Progress, SourcesError};
use entry::{Entry, kernels_dir, newest};
use spec::Spec;

/// A kernel that a VM can boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// The spec that the user gave: `lab`, `lab:linux-source-7.3`, `lab:/path`, `debian-cloud`,
    /// `debian-cloud:trixie` or a path.
    pub spec: String,
    /// Names the folder in the cache, such as `lab-6.12.117-1a2b3c4d`; for a path, the release. If
    /// an earlier kernel of this id was in use, the folder's name ends in `~1` or higher.
    pub id: String,
    /// The output of `uname -r` in a guest.
    pub release: String,
    /// The path of the bzImage.
    pub image: PathBuf,
    /// The path of its configuration, if known.
    pub config: Option<PathBuf>,
    /// The folder `lib/modules/RELEASE`, if the kernel has modules.
    pub modules: Option<PathBuf>,
    /// The origin: package and version, or a path.
    pub source: String,
}

/// Returns all cached kernels, the most recently made first.
///
/// # Errors
/// If the cache exists and cannot be read.
pub fn list() -> Result<Vec<Kernel>, KernelError> {
    entry::kernels(&kernels_dir())
}

/// Returns the kernel that `spec` names if it is available locally: the most recently made match in
/// the cache, or the bzImage at a path. If it returns `None`, [`ensure`] has to build or fetch the
/// kernel.
///
/// A `lab` kernel matches only if its fragments and patches are those of this program. A kernel
/// that was built from a folder matches only if the folder has not changed since.
///
/// # Errors
/// If `spec` is not valid, or names a file that is not a bzImage or a folder that is not a kernel's
/// source.
pub fn resolve(spec: &str) -> Result<Option<Kernel>, KernelError> {
    match Spec::parse(spec)? {
        Spec::Image(path) => from_image(spec, &path).map(Some),
        Spec::DebianCloud(_) => newest(&kernels_dir(), spec, None),
        // The folder's current content decides, because the user may have edited it since the last
        // build.
        Spec::Build(source @ Source::Dir(_)) => make::cached(&source),
        Spec::Build(source) => {
            let recipe = recipe::Recipe::of(&source).digest();
            newest(&kernels_dir(), spec, Some(&recipe))
        }
    }
}

/// Returns the kernel that `spec` means, and the right to use it, because a later revision may have
/// the same id. Builds or fetches the kernel if necessary. Kernels outside the cache may change.
///
/// # Errors
/// Returns those of [`resolve`], [`build`] and [`fetch_debian_cloud`], and an error if the cache
/// cannot be locked.
pub fn ensure(
    spec: &str,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Kernel, Option<InUse>), KernelError> {
    let parsed = Spec::parse(spec)?;
    loop {
        let kernel = match (resolve(spec)?, &parsed) {
            (Some(kernel), _) => kernel,
            (None, Spec::Build(source)) => build(source, progress)?,
            (None, Spec::DebianCloud(cloud)) => fetch_debian_cloud(*cloud, progress)?,
            (None, Spec::Image(path)) => from_image(spec, path)?,
        };
        let folder = kernel.image.parent().unwrap_or(Path::new("/"));
        let in_use = InUse::of::<Entry>(folder)?;
        // Before the lock was taken, a later revision may have come to the same place.
        let is_same = || load::<Entry>(folder).is_ok_and(|entry| entry.kernel == kernel);
        if matches!(parsed, Spec::Image(_)) || (in_use.is_some() && is_same()) {
            return Ok((kernel, in_use));
        }
    }
}

/// Returns a kernel outside the cache. Its configuration is searched where distributions put it:
/// next to the image, as `config-RELEASE` or `config`.
fn from_image(spec: &str, path: &Path) -> Result<Kernel, KernelError> {
    let image = path.canonicalize().map_err(|e| SourcesError::io("open the kernel", path, e))?;
    let release = bzimage::release(&image)?;
    let beside = image.parent().unwrap_or(Path::new("/"));
    let config = [format!("config-{release}"), "config".into()].map(|name| beside.join(name));
    let modules = Path::new("/lib/modules").join(&release);
    Ok(Kernel {
        spec: spec.into(),
        id: release.clone(),
        source: image.display().to_string(),
        config: config.into_iter().find(|file| file.is_file()),
        modules: modules.is_dir().then_some(modules),
        release,
        image,
    })
}
