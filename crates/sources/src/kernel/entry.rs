//! Kernels in the cache.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Kernel, KernelError};
use crate::cache::{Cached, cache_dir, entries};
use crate::progress::warn;

/// A kernel in the cache and the recipe of its build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    #[serde(flatten)]
    pub(super) kernel: Kernel,
    /// Digest of fragments, patches and headers; `None` for a fetched kernel.
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

/// Returns the folder of the cached kernels.
pub(super) fn kernels_dir() -> PathBuf {
    cache_dir().join("kernels")
}

/// Returns all kernels below `home`, the most recently made first.
pub(super) fn kernels(home: &Path) -> Result<Vec<Kernel>, KernelError> {
    Ok(entries::<Entry>(home)?.into_iter().map(|entry| entry.kernel).collect())
}

/// Returns the most recently made kernel with this spec and, if given, this recipe.
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

/// Returns the kernel with this id, if the cache has it.
pub(super) fn by_id(home: &Path, id: &str) -> Result<Option<Kernel>, KernelError> {
    Ok(kernels(home)?.into_iter().find(|kernel| kernel.id == id))
}

/// Returns the cached kernel, with a warning that `error` prevented the search for a newer one.
///
/// # Errors
/// `error`, if no kernel is cached.
pub(super) fn instead(cached: Option<Kernel>, error: KernelError) -> Result<Kernel, KernelError> {
    let Some(kernel) = cached else { return Err(error) };
    // Only the first line is shown, because an error may include the end of a log.
    let why = error.to_string().lines().next().unwrap_or_default().to_owned();
    warn(&format!("{why}; {} is taken, which is in the cache", kernel.id));
    Ok(kernel)
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
