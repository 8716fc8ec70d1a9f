//! The journal: a file that outlives this process and lists the sets and quotas that it has
//! written.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::error::CpusetError;
use super::set;

/// The contents of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Noted {
    /// The path at which the cgroups are mounted.
    root: PathBuf,
    /// The controllers that unspin has enabled.
    #[serde(default)]
    controllers: BTreeSet<String>,
    /// The set of all vCPUs, which means no limit if the kernel refuses an empty set.
    all: String,
    /// The sets of vCPUs that were written to each cgroup, by its folder under the root.
    groups: BTreeMap<String, BTreeSet<String>>,
    /// The sets that were written to each kernel thread, by its PID.
    #[serde(default)]
    threads: BTreeMap<i32, BTreeSet<String>>,
    /// The usual contents of `cpu.max` of cgroups that are braked when the limit changes.
    #[serde(default)]
    quotas: BTreeMap<String, String>,
}

/// The journal. Only one process at a time has it.
pub(super) struct Journal {
    file: PathBuf,
    noted: Noted,
    /// Whether `noted` has changes that are not in the file yet.
    unsaved: bool,
    _lock: Flock<File>,
}

/// The name of the journal's file.
const FILE: &str = "cpuset.json";
/// The file that the journal's process locks.
const LOCK: &str = "cpuset.lock";
/// The pause between two tries to get the lock.
const PAUSE: Duration = Duration::from_millis(20);

/// Opens a file that only root may open, whatever the umask. Anybody else who could open it could
/// keep the lock, or change what is going to be restored.
fn own_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Reads a journal; a missing file is an empty one. Any other error is returned, because the file
/// may list limits that are still in force.
fn read(file: &Path) -> io::Result<Noted> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(serde_json::from_str(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Noted::default()),
        Err(error) => Err(error),
    }
}

impl Journal {
    /// Returns whether the folder has a journal, so that something may be limited.
    pub(super) fn is_in(folder: &Path) -> bool {
        folder.join(FILE).exists()
    }

    /// Returns whether a process holds the journal. A killed process does not.
    pub(super) fn is_held(folder: &Path) -> bool {
        match File::open(folder.join(LOCK)) {
            Ok(file) => Flock::lock(file, FlockArg::LockSharedNonblock).is_err(),
            // Only root may open the lock, so a process without the right assumes that it is held.
            Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
        }
    }

    /// Opens the journal, with the notes of a killed process. Waits for up to `patience` for a
    /// process that holds it: a process that ends keeps its lock until the kernel has detached its
    /// BPF programs.
    pub(super) fn open(folder: &Path, patience: Duration) -> Result<Journal, CpusetError> {
        let failed = |error| CpusetError::Journal(folder.to_owned(), error);
        DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(failed)?;
        let path = folder.join(LOCK);
        let mut lock = own_file(&path).map_err(failed)?;
        let began = Instant::now();
        let _lock = loop {
            match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => break lock,
                Err((_, Errno::EWOULDBLOCK)) if began.elapsed() >= patience => {
                    return Err(CpusetError::Taken(path));
                }
                Err((again, Errno::EWOULDBLOCK)) => lock = again,
                Err((_, error)) => return Err(failed(error.into())),
            }
            thread::sleep(PAUSE);
        };
        let file = folder.join(FILE);
        let noted = read(&file).map_err(|error| CpusetError::Unreadable(file.clone(), error))?;
        Ok(Journal { file, noted, unsaved: false, _lock })
    }

    /// Starts the journal: notes the hierarchy's root, and the set that means no limit.
    pub(super) fn begin(&mut self, root: &Path, all: &str) -> Result<(), CpusetError> {
        self.noted = Noted { root: root.to_owned(), all: all.to_owned(), ..Noted::default() };
        self.save()
    }

    /// Notes that a controller is going to be enabled.
    pub(super) fn enable(&mut self, controller: &str) -> Result<(), CpusetError> {
        self.unsaved |= self.noted.controllers.insert(controller.to_owned());
        self.save_what_is_new()
    }

    /// Notes the quotas of cgroups that are going to be braked.
    pub(super) fn note_quotas(&mut self, quotas: &[(String, String)]) -> Result<(), CpusetError> {
        for (group, quota) in quotas {
            let was = self.noted.quotas.insert(group.clone(), quota.clone());
            self.unsaved |= was.as_ref() != Some(quota);
        }
        self.save_what_is_new()
    }

    /// Replaces the set of all vCPUs, and returns the old set.
    pub(super) fn replace_all(&mut self, all: &str) -> Result<String, CpusetError> {
        self.unsaved |= self.noted.all != all;
        let old = std::mem::replace(&mut self.noted.all, all.to_owned());
        for sets in self.noted.groups.values_mut() {
            self.unsaved |= sets.insert(all.to_owned());
        }
        if let Err(error) = self.save_what_is_new() {
            self.noted.all = old;
            return Err(error);
        }
        Ok(old)
    }

    /// Notes that a cgroup is not limited any more; `says` is its current set. A set that somebody
    /// writes there from now on is theirs, even if unspin has written the same set before.
    pub(super) fn forget(&mut self, group: &str, says: &str) {
        let all = (says == self.noted.all).then(|| says.to_owned());
        let sets = all.into_iter().collect::<BTreeSet<_>>();
        self.unsaved |= self.noted.groups.get(group).is_some_and(|noted| *noted != sets);
        match sets.is_empty() {
            true => self.noted.groups.remove(group),
            false => self.noted.groups.insert(group.to_owned(), sets),
        };
    }

    /// Notes that a kernel thread is not limited any more.
    pub(super) fn forget_thread(&mut self, pid: i32) {
        self.unsaved |= self.noted.threads.remove(&pid).is_some();
    }

    /// Forgets kernel threads that have ended.
    pub(super) fn forget_ended(&mut self) {
        let before = self.noted.threads.len();
        self.noted.threads.retain(|pid, _| Path::new(&format!("/proc/{pid}")).exists());
        self.unsaved |= self.noted.threads.len() != before;
    }

    /// Notes the set that is going to be written to some cgroups and kernel threads, and forgets
    /// cgroups that have gone.
    pub(super) fn note(
        &mut self,
        there: &[String],
        groups: &[String],
        threads: &[i32],
        set: &str,
    ) -> Result<(), CpusetError> {
        self.noted.groups.retain(|group, _| there.contains(group));
        self.noted.quotas.retain(|group, _| there.contains(group));
        for group in groups {
            let sets = self.noted.groups.entry(group.clone()).or_default();
            self.unsaved |= sets.insert(self.noted.all.clone());
            self.unsaved |= sets.insert(set.to_owned());
        }
        for &pid in threads {
            let sets = self.noted.threads.entry(pid).or_default();
            self.unsaved |= sets.insert(set.to_owned());
        }
        self.save_what_is_new()
    }

    /// Removes the journal, because nothing is limited any more.
    pub(super) fn end(&mut self) {
        self.noted = Noted::default();
        let _ = fs::remove_file(&self.file);
    }

    pub(super) fn root(&self) -> Option<PathBuf> {
        Some(self.noted.root.clone()).filter(|root| root.is_absolute())
    }

    pub(super) fn enabled(&self, controller: &str) -> bool {
        self.noted.controllers.contains(controller)
    }

    /// Returns the quotas of cgroups that may be braked.
    pub(super) fn quotas(&self) -> impl Iterator<Item = (&str, &str)> {
        self.noted.quotas.iter().map(|(group, quota)| (group.as_str(), quota.as_str()))
    }

    /// Returns the set that means no limit.
    pub(super) fn all(&self) -> &str {
        &self.noted.all
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &str> {
        self.noted.groups.keys().map(String::as_str)
    }

    pub(super) fn threads(&self) -> impl Iterator<Item = i32> {
        self.noted.threads.keys().copied()
    }

    /// Returns whether unspin may have written a kernel thread's set. The kernel reports only the
    /// vCPUs of the set that are `online`.
    pub(super) fn wrote_to_thread(&self, pid: i32, set: &str, online: &[u32]) -> bool {
        let is_it = |noted: &String| set::within(noted, online) == set;
        self.noted.threads.get(&pid).is_some_and(|sets| sets.iter().any(is_it))
    }

    /// Returns whether unspin may have written a cgroup's set.
    pub(super) fn wrote(&self, group: &str, set: &str) -> bool {
        self.noted.groups.get(group).is_some_and(|sets| sets.contains(set))
    }

    /// Writes the file if the notes have changed since the last write.
    pub(super) fn save_what_is_new(&mut self) -> Result<(), CpusetError> {
        if self.unsaved { self.save() } else { Ok(()) }
    }

    /// Replaces the file at once, so that a reader sees either the old contents or the new ones.
    fn save(&mut self) -> Result<(), CpusetError> {
        self.unsaved = true;
        let new = self.file.with_extension("new");
        let write = || {
            let text = serde_json::to_string(&self.noted)?;
            let mut file = own_file(&new)?;
            file.set_len(0)?;
            file.write_all(text.as_bytes())?;
            fs::rename(&new, &self.file)
        };
        write().map_err(|error: io::Error| CpusetError::Journal(self.file.clone(), error))?;
        self.unsaved = false;
        Ok(())
    }
}
