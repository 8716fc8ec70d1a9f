//! What has been written to cgroups, in a file that outlives this process.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::cpusets::CpusetError;

/// The file's contents.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Noted {
    /// The mount of the cgroups.
    root: PathBuf,
    /// Whether the controller was enabled here.
    enabled: bool,
    /// Folders of cgroups under the root, and the sets of vCPUs that were written there.
    groups: BTreeSet<String>,
    sets: BTreeSet<String>,
}

/// The journal. One process at a time has it.
pub(super) struct Journal {
    file: PathBuf,
    noted: Noted,
    _lock: Flock<File>,
}

/// Its name.
const FILE: &str = "cpuset.json";
/// The file that its process has locked.
const LOCK: &str = "cpuset.lock";

impl Journal {
    /// Whether there is one, so that something may be limited.
    pub(super) fn is_in(folder: &Path) -> bool {
        folder.join(FILE).exists()
    }

    /// Whether a process has it: what a killed one has left is nobody's.
    pub(super) fn is_held(folder: &Path) -> bool {
        let lock = File::open(folder.join(LOCK)).ok();
        let tried = lock.map(|file| Flock::lock(file, FlockArg::LockSharedNonblock));
        tried.is_some_and(|lock| lock.is_err())
    }

    /// Opens it, with what a killed process has left.
    pub(super) fn open(folder: &Path) -> Result<Journal, CpusetError> {
        let failed = |error| CpusetError::Journal(folder.to_owned(), error);
        fs::create_dir_all(folder).map_err(failed)?;
        let path = folder.join(LOCK);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let _lock = Flock::lock(lock.map_err(failed)?, FlockArg::LockExclusiveNonblock)
            .map_err(|_| CpusetError::Taken(path))?;
        let file = folder.join(FILE);
        let text = fs::read_to_string(&file).unwrap_or_default();
        let noted = serde_json::from_str(&text).unwrap_or_default();
        Ok(Journal { file, noted, _lock })
    }

    /// Notes where limits are going to be, and whether the controller must be enabled for them.
    pub(super) fn begin(&mut self, root: &Path, enabled: bool) -> Result<(), CpusetError> {
        self.noted = Noted { root: root.to_owned(), enabled, ..Noted::default() };
        self.save()
    }

    /// Notes what is going to be written to these cgroups.
    pub(super) fn note(&mut self, groups: &[String], set: &str) -> Result<(), CpusetError> {
        let known = self.noted.sets.len() + self.noted.groups.len();
        self.noted.sets.insert(set.to_owned());
        self.noted.groups.extend(groups.iter().cloned());
        if known == self.noted.sets.len() + self.noted.groups.len() {
            return Ok(());
        }
        self.save()
    }

    /// Nothing is limited any more.
    pub(super) fn end(&mut self) {
        self.noted = Noted::default();
        let _ = fs::remove_file(&self.file);
    }

    pub(super) fn root(&self) -> Option<PathBuf> {
        Some(self.noted.root.clone()).filter(|root| root.is_absolute())
    }

    pub(super) fn enabled(&self) -> bool {
        self.noted.enabled
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &str> {
        self.noted.groups.iter().map(String::as_str)
    }

    /// Whether a set may have been written here.
    pub(super) fn wrote(&self, set: &str) -> bool {
        self.noted.sets.contains(set)
    }

    /// A reader sees the old contents or the new ones.
    fn save(&self) -> Result<(), CpusetError> {
        let new = self.file.with_extension("new");
        let text = serde_json::to_string(&self.noted).map_err(io::Error::from);
        text.and_then(|text| fs::write(&new, text))
            .and_then(|()| fs::rename(&new, &self.file))
            .map_err(|error| CpusetError::Journal(self.file.clone(), error))
    }
}
