//! What has been written to cgroups, in a file that outlives this process.

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

/// The file's contents.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Noted {
    /// The mount of the cgroups.
    root: PathBuf,
    /// Controllers that were enabled here.
    #[serde(default)]
    controllers: BTreeSet<String>,
    /// Stands for no limit where the kernel refuses an empty set.
    all: String,
    /// Folders of cgroups under the root, and the sets of vCPUs that were written to each.
    groups: BTreeMap<String, BTreeSet<String>>,
    /// The same for kernel threads, by their numbers.
    #[serde(default)]
    threads: BTreeMap<i32, BTreeSet<String>>,
    /// Cgroups that are braked while they are limited, and what their `cpu.max` says else.
    #[serde(default)]
    quotas: BTreeMap<String, String>,
}

/// The journal. One process at a time has it.
pub(super) struct Journal {
    file: PathBuf,
    noted: Noted,
    /// Whether the file says less than `noted`.
    unsaved: bool,
    _lock: Flock<File>,
}

/// Its name.
const FILE: &str = "cpuset.json";
/// The file that its process has locked.
const LOCK: &str = "cpuset.lock";
/// Between two tries to get the lock.
const PAUSE: Duration = Duration::from_millis(20);

/// Nobody else may open it, whatever the umask: who can, can also keep the lock, or change what is
/// going to be restored.
fn own_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// What a file says; nothing where there is none. One that cannot be read may be about limits that
/// are still in force.
fn read(file: &Path) -> io::Result<Noted> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(serde_json::from_str(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Noted::default()),
        Err(error) => Err(error),
    }
}

impl Journal {
    /// Whether there is one, so that something may be limited.
    pub(super) fn is_in(folder: &Path) -> bool {
        folder.join(FILE).exists()
    }

    /// Whether a process has it: what a killed one has left is nobody's.
    pub(super) fn is_held(folder: &Path) -> bool {
        match File::open(folder.join(LOCK)) {
            Ok(file) => Flock::lock(file, FlockArg::LockSharedNonblock).is_err(),
            // Only root may look.
            Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
        }
    }

    /// Opens it, with what a killed process has left. Waits so long for one that has it: a
    /// process that ends keeps its lock until the kernel has let go of its BPF programs.
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

    /// Notes where limits are going to be, and the set that stands for none.
    pub(super) fn begin(&mut self, root: &Path, all: &str) -> Result<(), CpusetError> {
        self.noted = Noted { root: root.to_owned(), all: all.to_owned(), ..Noted::default() };
        self.save()
    }

    /// Notes that a controller is going to be enabled.
    pub(super) fn enable(&mut self, controller: &str) -> Result<(), CpusetError> {
        self.unsaved |= self.noted.controllers.insert(controller.to_owned());
        self.save_what_is_new()
    }

    /// Notes what the quotas of cgroups are that are going to be braked.
    pub(super) fn note_quotas(&mut self, quotas: &[(String, String)]) -> Result<(), CpusetError> {
        for (group, quota) in quotas {
            let was = self.noted.quotas.insert(group.clone(), quota.clone());
            self.unsaved |= was.as_ref() != Some(quota);
        }
        self.save_what_is_new()
    }

    /// Notes that all vCPUs are others now; returns what they were.
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

    /// A cgroup is not limited any more, and `says` what it does: a set that somebody writes there
    /// from now on is theirs, even one that has been written here before.
    pub(super) fn forget(&mut self, group: &str, says: &str) {
        let all = (says == self.noted.all).then(|| says.to_owned());
        let sets = all.into_iter().collect::<BTreeSet<_>>();
        self.unsaved |= self.noted.groups.get(group).is_some_and(|noted| *noted != sets);
        match sets.is_empty() {
            true => self.noted.groups.remove(group),
            false => self.noted.groups.insert(group.to_owned(), sets),
        };
    }

    /// The same for a kernel thread.
    pub(super) fn forget_thread(&mut self, pid: i32) {
        self.unsaved |= self.noted.threads.remove(&pid).is_some();
    }

    /// Forgets kernel threads that have ended.
    pub(super) fn forget_ended(&mut self) {
        let before = self.noted.threads.len();
        self.noted.threads.retain(|pid, _| Path::new(&format!("/proc/{pid}")).exists());
        self.unsaved |= self.noted.threads.len() != before;
    }

    /// Notes what is going to be written to some cgroups and kernel threads, and forgets cgroups
    /// that have gone.
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

    /// Nothing is limited any more.
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

    /// The quotas of cgroups that may be braked.
    pub(super) fn quotas(&self) -> impl Iterator<Item = (&str, &str)> {
        self.noted.quotas.iter().map(|(group, quota)| (group.as_str(), quota.as_str()))
    }

    /// The set that stands for no limit.
    pub(super) fn all(&self) -> &str {
        &self.noted.all
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &str> {
        self.noted.groups.keys().map(String::as_str)
    }

    pub(super) fn threads(&self) -> impl Iterator<Item = i32> {
        self.noted.threads.keys().copied()
    }

    /// Whether a kernel thread's set may have been written here. The kernel reads out only those of
    /// its vCPUs that are `online`.
    pub(super) fn wrote_to_thread(&self, pid: i32, set: &str, online: &[u32]) -> bool {
        let is_it = |noted: &String| set::within(noted, online) == set;
        self.noted.threads.get(&pid).is_some_and(|sets| sets.iter().any(is_it))
    }

    /// Whether a cgroup's set may have been written here.
    pub(super) fn wrote(&self, group: &str, set: &str) -> bool {
        self.noted.groups.get(group).is_some_and(|sets| sets.contains(set))
    }

    /// Writes what is noted and not in the file yet.
    pub(super) fn save_what_is_new(&mut self) -> Result<(), CpusetError> {
        if self.unsaved { self.save() } else { Ok(()) }
    }

    /// A reader sees the old contents or the new ones.
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
