//! The cache: one folder per kernel, which is complete or not there.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::{Kernel, KernelError};

/// The description in a kernel's folder.
const METADATA: &str = "kernel.json";
/// Folders of work under way begin so; they are nobody's kernel.
const STAGING: &str = ".staging-";

/// A kernel in the cache and what it was made by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    #[serde(flatten)]
    pub(super) kernel: Kernel,
    /// Digest of fragments and patches; `None` for a fetched kernel.
    pub(super) recipe: Option<String>,
}

/// Where unspin keeps what can be made again: `$UNSPIN_CACHE`, else
/// `$XDG_CACHE_HOME/unspin`, else `~/.cache/unspin`.
pub fn cache_dir() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    if let Some(folder) = set("UNSPIN_CACHE") {
        // A guest's image and QEMU are named from other folders.
        let folder = PathBuf::from(folder);
        return std::path::absolute(&folder).unwrap_or(folder);
    }
    let home = || PathBuf::from(set("HOME").unwrap_or_else(|| "/root".into())).join(".cache");
    set("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("unspin")
}

/// Where the kernels are.
pub(super) fn kernels_dir() -> PathBuf {
    cache_dir().join("kernels")
}

/// All complete kernels below `home`, the newest made first.
pub(super) fn entries(home: &Path) -> Result<Vec<Entry>, KernelError> {
    let read = |error| KernelError::io("read", home, error);
    let folders = match fs::read_dir(home) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        folders => folders.map_err(read)?,
    };
    let mut found = Vec::new();
    for folder in folders {
        let folder = folder.map_err(read)?.path();
        let hidden =
            folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && folder.join(METADATA).is_file() {
            found.push((made(&folder), load(&folder)?));
        }
    }
    found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| b.1.kernel.id.cmp(&a.1.kernel.id)));
    Ok(found.into_iter().map(|(_, entry)| entry).collect())
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

/// The kernel of that id, if it is there.
pub(super) fn by_id(home: &Path, id: &str) -> Result<Option<Kernel>, KernelError> {
    Ok(entries(home)?.into_iter().find(|entry| entry.kernel.id == id).map(|entry| entry.kernel))
}

fn made(folder: &Path) -> SystemTime {
    fs::metadata(folder.join(METADATA))
        .and_then(|data| data.modified())
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Paths are stored relative to the folder, so that a cache can be moved.
fn load(folder: &Path) -> Result<Entry, KernelError> {
    let path = folder.join(METADATA);
    let text = fs::read_to_string(&path).map_err(|e| KernelError::io("read", &path, e))?;
    let mut entry: Entry =
        serde_json::from_str(&text).map_err(|source| KernelError::Metadata { path, source })?;
    let kernel = &mut entry.kernel;
    kernel.image = folder.join(&kernel.image);
    kernel.config = kernel.config.as_ref().map(|path| folder.join(path));
    kernel.modules = kernel.modules.as_ref().map(|path| folder.join(path));
    Ok(entry)
}

/// The right to change the cache, and a staging folder in it.
///
/// Held by one process at a time. What an interrupted one left is removed.
pub(super) struct Staging {
    home: PathBuf,
    folder: PathBuf,
    _lock: Flock<File>,
}

impl Staging {
    /// Takes the cache's lock, calling `waiting` first if another process has it.
    pub(super) fn begin(home: &Path, waiting: &mut dyn FnMut()) -> Result<Self, KernelError> {
        fs::create_dir_all(home).map_err(|e| KernelError::io("create", home, e))?;
        let path = home.join(".lock");
        let file = File::create(&path).map_err(|e| KernelError::io("create", &path, e))?;
        let lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Err((file, nix::errno::Errno::EWOULDBLOCK)) => {
                waiting();
                Flock::lock(file, FlockArg::LockExclusive)
            }
            lock => lock,
        };
        let lock = lock.map_err(|(_, errno)| KernelError::io("lock", &path, errno.into()))?;
        sweep(home)?;
        let folder = home.join(format!("{STAGING}{}", std::process::id()));
        fs::create_dir(&folder).map_err(|e| KernelError::io("create", &folder, e))?;
        Ok(Self { home: home.into(), folder, _lock: lock })
    }

    /// A folder for work that is thrown away.
    pub(super) fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    /// The folder that becomes the kernel's.
    pub(super) fn entry(&self) -> PathBuf {
        self.folder.join("entry")
    }

    /// Makes the entry's folder a kernel of the cache. Paths of `entry` are relative to it.
    pub(super) fn publish(self, entry: &Entry) -> Result<Kernel, KernelError> {
        let path = self.entry().join(METADATA);
        let text = serde_json::to_string_pretty(entry)
            .map_err(|source| KernelError::Metadata { path: path.clone(), source })?;
        fs::write(&path, text + "\n").map_err(|e| KernelError::io("write", &path, e))?;
        let home = self.home.join(&entry.kernel.id);
        if home.exists() {
            fs::remove_dir_all(&home).map_err(|e| KernelError::io("replace", &home, e))?;
        }
        fs::rename(self.entry(), &home).map_err(|e| KernelError::io("create", &home, e))?;
        load(&home).map(|entry| entry.kernel)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Best effort: the next one sweeps.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Removes staging folders; the caller holds the lock, so nobody works in them.
fn sweep(home: &Path) -> Result<(), KernelError> {
    let folders = fs::read_dir(home).map_err(|e| KernelError::io("read", home, e))?;
    for folder in folders.flatten() {
        if folder.file_name().as_encoded_bytes().starts_with(STAGING.as_bytes()) {
            let folder = folder.path();
            fs::remove_dir_all(&folder).map_err(|e| KernelError::io("remove", &folder, e))?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
