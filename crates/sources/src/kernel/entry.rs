//! Kernels in the cache.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Kernel, KernelError};
use crate::cache::{Cached, cache_dir, entries};
use crate::progress::warn;

/// A kernel in the cache and what it was made by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    #[serde(flatten)]
    pub(super) kernel: Kernel,
    /// Digest of fragments and patches; `None` for a fetched kernel.
    pub(super) recipe: Option<String>,
}

impl Cached for Entry {
    const METADATA: &'static str = "kernel.json";

    fn id(&self) -> &str {
        &self.kernel.id
    }

    fn locate(&mut self, folder: &Path) {
        let kernel = &mut self.kernel;
        kernel.image = folder.join(&kernel.image);
        kernel.config = kernel.config.as_ref().map(|path| folder.join(path));
        kernel.modules = kernel.modules.as_ref().map(|path| folder.join(path));
    }
}

/// Where the kernels are.
pub(super) fn kernels_dir() -> PathBuf {
    cache_dir().join("kernels")
}

/// All kernels below `home`, the newest made first.
pub(super) fn kernels(home: &Path) -> Result<Vec<Kernel>, KernelError> {
    Ok(entries::<Entry>(home)?.into_iter().map(|entry| entry.kernel).collect())
}

/// The newest made kernel that answers to `spec`, of that recipe if one is given.
pub(super) fn newest(
    home: &Path,
    spec: &str,
    recipe: Option<&str>,
) -> Result<Option<Kernel>, KernelError> {
    let fits = |entry: &Entry| {
        entry.kernel.spec == spec && (recipe.is_none() || entry.recipe.as_deref() == recipe)
    };
    Ok(entries(home)?.into_iter().find(fits).map(|entry| entry.kernel))
}

/// The kernel of that id, if it is in the cache.
pub(super) fn by_id(home: &Path, id: &str) -> Result<Option<Kernel>, KernelError> {
    Ok(kernels(home)?.into_iter().find(|kernel| kernel.id == id))
}

/// The cached kernel, with a warning that `error` kept a newer one from being looked for.
///
/// # Errors
/// `error` when nothing is cached.
pub(super) fn instead(cached: Option<Kernel>, error: KernelError) -> Result<Kernel, KernelError> {
    let Some(kernel) = cached else { return Err(error) };
    // An error may show the end of a log.
    let why = error.to_string().lines().next().unwrap_or_default().to_owned();
    warn(&format!("{why}; {} is taken, which is in the cache", kernel.id));
    Ok(kernel)
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
