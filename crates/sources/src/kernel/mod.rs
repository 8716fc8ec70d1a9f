//! Kernels: built from a source package with the lab's fragments and patches,
//! or fetched from Debian's archive, and cached by content.
//!
//! A cached kernel is a folder below [`cache_dir`](crate::cache_dir)`/kernels` named by its id. It
//! appears there complete or not at all: work happens in a staging folder beside
//! it, which is renamed at the end.

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

use crate::{Progress, SourcesError};
use entry::{kernels_dir, newest};
use spec::Spec;

/// A kernel that a VM can boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// As asked for: `lab`, `lab:linux-source-7.3`, `lab:/path`, `debian-cloud`,
    /// `debian-cloud:trixie` or a path.
    pub spec: String,
    /// Names the folder in the cache, such as `lab-6.12.117-1a2b3c4d`; for a path, the release.
    pub id: String,
    /// What `uname -r` says in a guest.
    pub release: String,
    /// The bzImage.
    pub image: PathBuf,
    /// Its configuration, where known.
    pub config: Option<PathBuf>,
    /// The folder `lib/modules/RELEASE`, if the kernel has modules.
    pub modules: Option<PathBuf>,
    /// Where it comes from: package and version, or a path.
    pub source: String,
}

/// All cached kernels, the newest made first.
///
/// # Errors
/// When the cache exists and cannot be read.
pub fn list() -> Result<Vec<Kernel>, KernelError> {
    entry::kernels(&kernels_dir())
}

/// The kernel that `spec` means, if it is here already: the one made last of those
/// in the cache that match, or the bzImage at a path. `None` means that
/// [`ensure`] would have to build or fetch it.
///
/// A `lab` kernel of other fragments or patches than this program's does not match, nor does one
/// of a folder that has changed since.
///
/// # Errors
/// When `spec` is not one, or names a file that is not a bzImage or a folder that is not a
/// kernel's source.
pub fn resolve(spec: &str) -> Result<Option<Kernel>, KernelError> {
    match Spec::parse(spec)? {
        Spec::Image(path) => from_image(spec, &path).map(Some),
        Spec::DebianCloud(_) => newest(&kernels_dir(), spec, None),
        // What the folder holds decides, which may have been edited since the last build.
        Spec::Build(source @ Source::Dir(_)) => make::cached(&source),
        Spec::Build(source) => {
            let recipe = recipe::Recipe::of(&source).digest();
            newest(&kernels_dir(), spec, Some(&recipe))
        }
    }
}

/// The kernel that `spec` means, built or fetched if it is not here.
///
/// # Errors
/// Those of [`resolve`], [`build`] and [`fetch_debian_cloud`].
pub fn ensure(spec: &str, progress: &mut dyn FnMut(Progress)) -> Result<Kernel, KernelError> {
    if let Some(kernel) = resolve(spec)? {
        return Ok(kernel);
    }
    match Spec::parse(spec)? {
        Spec::Build(source) => build(&source, progress),
        Spec::DebianCloud(cloud) => fetch_debian_cloud(cloud, progress),
        Spec::Image(path) => from_image(spec, &path),
    }
}

/// A kernel outside the cache. Its configuration is looked for where distributions
/// put it: beside the image, as `config-RELEASE` or `config`.
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
