//! The cache: one folder per result, which is complete or absent.

use std::ffi::OsString;
use std::fs::{self, DirEntry, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::SourcesError;
use super::progress::warn;

/// Prefix of the folders of unfinished work, which do not count as entries.
const STAGING: &str = ".staging-";
/// Comes before the number of a folder whose entry's name is taken: `ID~1`.
const NUMBERED: char = '~';

/// The description of an entry, stored as JSON in the entry's folder.
pub(super) trait Cached: Serialize + DeserializeOwned {
    /// The file's name.
    const METADATA: &'static str;

    /// The name of the entry's folder, without its number.
    fn id(&self) -> &str;

    /// Prefixes the paths, which are stored relative to the folder so that a cache can be
    /// moved.
    fn locate(&mut self, folder: &Path);
}

/// Where unspin keeps what can be made again: `$UNSPIN_CACHE`, else
/// `$XDG_CACHE_HOME/unspin`, else `~/.cache/unspin`.
pub fn cache_dir() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let home = || PathBuf::from(set("HOME").unwrap_or_else(|| "/root".into())).join(".cache");
    let usual = || set("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("unspin");
    let folder = set("UNSPIN_CACHE").map_or_else(usual, PathBuf::from);
    // A guest's image and QEMU are named from other folders, and apt runs in others.
    std::path::absolute(&folder).unwrap_or(folder)
}

/// All complete entries below `home`, the newest made first. A damaged one is left out with a
/// warning: the others are as good as before.
pub(super) fn entries<T: Cached>(home: &Path) -> Result<Vec<T>, SourcesError> {
    let read = |error| SourcesError::io("read", home, error);
    let folders = match fs::read_dir(home) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        folders => folders.map_err(read)?,
    };
    let mut found = Vec::new();
    for folder in folders {
        let folder = folder.map_err(read)?.path();
        let hidden =
            folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && folder.join(T::METADATA).is_file() {
            match load::<T>(&folder) {
                Err(error @ SourcesError::Metadata { .. }) => warn(&error.to_string()),
                entry => found.push((made::<T>(&folder), entry?)),
            }
        }
    }
    found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| b.1.id().cmp(a.1.id())));
    Ok(found.into_iter().map(|(_, entry)| entry).collect())
}

fn made<T: Cached>(folder: &Path) -> SystemTime {
    fs::metadata(folder.join(T::METADATA))
        .and_then(|data| data.modified())
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

pub(super) fn load<T: Cached>(folder: &Path) -> Result<T, SourcesError> {
    let path = folder.join(T::METADATA);
    let bytes = fs::read(&path).map_err(|e| SourcesError::io("read", &path, e))?;
    let mut entry: T =
        serde_json::from_slice(&bytes).map_err(|source| SourcesError::Metadata { path, source })?;
    entry.locate(folder);
    Ok(entry)
}

/// The right to use an entry of the cache: while it lasts, the entry keeps its place and its
/// content, whatever this and other processes build or fetch.
#[derive(Debug)]
pub struct InUse {
    /// `None` if the file system has no locks: then nothing protects the entry.
    _lock: Option<Flock<File>>,
}

impl InUse {
    /// Takes the right to use the entry in `folder`. Returns `None` if the entry is missing, or is
    /// being replaced.
    pub(super) fn of<T: Cached>(folder: &Path) -> Result<Option<Self>, SourcesError> {
        let path = folder.join(T::METADATA);
        let lock = match lock(File::open(&path), FlockArg::LockSharedNonblock) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::WouldBlock) => {
                return Ok(None);
            }
            Err(error) if has_no_locks(&error) => return Ok(Some(Self { _lock: None })),
            lock => lock.map_err(|e| SourcesError::io("lock", &path, e))?,
        };
        // It may have gone before it was locked, and another one be in its place.
        let is_it = |there: Metadata| lock.metadata().is_ok_and(|own| own.ino() == there.ino());
        let is_there = fs::metadata(&path).is_ok_and(is_it);
        Ok(is_there.then_some(Self { _lock: Some(lock) }))
    }
}

/// Returns whether the file system supports no locks, as NFS without a lock daemon.
fn has_no_locks(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::ENOLCK | Errno::ENOSYS | Errno::EOPNOTSUPP))
}

fn lock(file: io::Result<File>, how: FlockArg) -> io::Result<Flock<File>> {
    Flock::lock(file?, how).map_err(|(_, errno)| errno.into())
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
    pub(super) fn begin(home: &Path, waiting: &mut dyn FnMut()) -> Result<Self, SourcesError> {
        fs::create_dir_all(home).map_err(|e| SourcesError::io("create", home, e))?;
        let path = home.join(".lock");
        let file = File::create(&path).map_err(|e| SourcesError::io("create", &path, e))?;
        let lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Err((file, Errno::EWOULDBLOCK)) => {
                waiting();
                Flock::lock(file, FlockArg::LockExclusive)
            }
            lock => lock,
        };
        let lock = lock.map_err(|(_, errno)| SourcesError::io("lock", &path, errno.into()))?;
        sweep(home)?;
        let folder = home.join(format!("{STAGING}{}", std::process::id()));
        fs::create_dir(&folder).map_err(|e| SourcesError::io("create", &folder, e))?;
        Ok(Self { home: home.into(), folder, _lock: lock })
    }

    /// A folder for work that is thrown away.
    pub(super) fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    /// The folder that becomes the entry's.
    pub(super) fn entry(&self) -> PathBuf {
        self.folder.join("entry")
    }

    /// Makes the staging entry visible. Paths of `entry` are relative to its folder; those
    /// of the result are absolute.
    pub(super) fn publish<T: Cached>(self, entry: &T) -> Result<T, SourcesError> {
        let path = self.entry().join(T::METADATA);
        let text = serde_json::to_string_pretty(entry)
            .map_err(|source| SourcesError::Metadata { path: path.clone(), source })?;
        fs::write(&path, text + "\n").map_err(|e| SourcesError::io("write", &path, e))?;
        sync(&self.folder)?;
        let home = self.place::<T>(entry.id())?;
        fs::rename(self.entry(), &home).map_err(|e| SourcesError::io("create", &home, e))?;
        load(&home)
    }

    /// Where an entry of this id comes. Earlier ones go, except those that a lab uses: they keep
    /// their place until the next one comes.
    fn place<T: Cached>(&self, id: &str) -> Result<PathBuf, SourcesError> {
        for (number, old) in of_id(&self.home, id)?.iter().enumerate() {
            let metadata = File::options().read(true).write(true).open(old.join(T::METADATA));
            let _unused = match lock(metadata, FlockArg::LockExclusiveNonblock) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                // Without its description, it is not an entry that anyone could use.
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                lock => Some(lock.map_err(|e| SourcesError::io("lock", old, e))?),
            };
            // Removed together with the staging folder. An interrupted removal in its own place
            // would leave an entry that looks complete.
            let replaced = self.folder.join(format!("replaced-{number}"));
            fs::rename(old, replaced).map_err(|e| SourcesError::io("replace", old, e))?;
        }
        let (mut place, mut number) = (self.home.join(id), 0_u32);
        while place.exists() {
            number += 1;
            place = self.home.join(format!("{id}{NUMBERED}{number}"));
        }
        Ok(place)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Best effort: the next one sweeps.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Writes the folder's file system to the disk. Otherwise, a power failure may leave an entry under
/// its name with files that are empty.
pub(super) fn sync(folder: &Path) -> Result<(), SourcesError> {
    let synced = File::open(folder).and_then(|folder| Ok(nix::unistd::syncfs(folder)?));
    synced.map_err(|e| SourcesError::io("write to the disk", folder, e))
}

/// The folders of entries with this id, numbered or not.
fn of_id(home: &Path, id: &str) -> Result<Vec<PathBuf>, SourcesError> {
    let folders = fs::read_dir(home).map_err(|e| SourcesError::io("read", home, e))?;
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    let has_id = |folder: &DirEntry| {
        let name = folder.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(id));
        rest.is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix(NUMBERED).is_some_and(is_number)
        })
    };
    Ok(folders.flatten().filter(has_id).map(|folder| folder.path()).collect())
}

/// Removes staging folders; the caller holds the lock, so nobody works in them.
fn sweep(home: &Path) -> Result<(), SourcesError> {
    let folders = fs::read_dir(home).map_err(|e| SourcesError::io("read", home, e))?;
    for folder in folders.flatten() {
        if folder.file_name().as_encoded_bytes().starts_with(STAGING.as_bytes()) {
            let folder = folder.path();
            fs::remove_dir_all(&folder).map_err(|e| SourcesError::io("remove", &folder, e))?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
