//! Limits tasks to some vCPUs with cgroups of version 2.
//!
//! The limit is the `cpuset.cpus` of every top-level cgroup. Kernel threads, which are in none, are
//! moved one by one; if that takes long, some move later. Once a trial shows no rivals, or a limit
//! is likely to last, the other vCPUs become a partition of their own ([`Spare`]). They do not if
//! the kernel refuses, or if somebody has given a top-level cgroup a set of vCPUs.
//!
//! Only a cgroup without a set of its own is limited, so lifting the limit means clearing the set.
//! Before Linux 7.0, the kernel refuses an empty set if the cgroup has tasks (ENOSPC); the set of
//! all vCPUs is written then. A set that unspin did not write is somebody else's, and stays. Each
//! set is noted in a journal before it is written, so that a later process can clear it if this one
//! is killed.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::brake::{self, Brake, Braked};
use super::error::CpusetError;
use super::guard::Guard;
use super::journal::Journal;
use super::kthreads::{self, Threads};
use super::root::lists;
use super::set;
use super::spare::{self, Spare};

/// The name of the controller.
const CONTROLLER: &str = "cpuset";
pub(super) const CONTROL: &str = "cgroup.subtree_control";
const CPUS: &str = "cpuset.cpus";
/// How long to wait for the lock of a process that is ending.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// Other files of a cgroup with sets, which are lost with the controller.
const OTHERS: [&str; 2] = ["cpuset.mems", "cpuset.cpus.exclusive"];

/// Checks that the hierarchy at `root` can limit tasks, and lift the limit again.
pub(super) fn check(root: &Path, isolated: &str) -> Result<(), CpusetError> {
    // Only the real root lacks this file.
    if root.join("cgroup.type").exists() {
        return Err(CpusetError::Container(root.to_owned()));
    }
    if !lists(root, "cgroup.controllers", CONTROLLER)? {
        return Err(CpusetError::NoController(root.to_owned()));
    }
    match isolated {
        "" => Ok(()),
        vcpus => Err(CpusetError::Isolated(vcpus.to_owned())),
    }
}

/// The hierarchy of cgroups. Dropping this lifts the limit.
pub struct Cpusets {
    root: PathBuf,
    journal: Journal,
    limited: BTreeSet<String>,
    left_alone: BTreeSet<String>,
    threads: Threads,
    /// Takes the other vCPUs out of the hierarchy, if the kernel supports that.
    spare: Option<Spare>,
    /// Why the kernel has refused the partition. It is asked again after this limit.
    refused: Option<String>,
    brake: Option<Brake>,
    /// Whether the release of a brake has failed.
    held: bool,
    /// Dropped after the journal, because it then takes the journal over.
    pub(super) guard: Option<Guard>,
}

/// How a limit is set.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Whether to brake tasks meanwhile: if tasks spin, the limit takes effect sooner.
    pub brake: bool,
    /// Whether to make the other vCPUs a partition, which takes longer than the limit itself.
    pub part: bool,
}

/// The result of clearing a cgroup's set.
enum Cleared {
    Lifted,
    /// Somebody else has written the set.
    Foreign,
    Failed(io::Error),
}

impl Cpusets {
    /// Takes over the hierarchy at `root`, and lifts the limits of a killed process. `folder` is
    /// for the journal; `proc` lists processes; `all` is the set of all vCPUs. `brakes` says
    /// whether the kernel throttles tasks only in user space.
    pub fn open(
        root: &Path,
        folder: &Path,
        proc: &Path,
        all: &str,
        brakes: bool,
    ) -> Result<Cpusets, CpusetError> {
        let mut journal = Journal::open(folder, PATIENCE)?;
        restore(&mut journal)?;
        check(root, &set::isolated())?;
        journal.begin(root, all)?;
        let (limited, left_alone) = (BTreeSet::new(), BTreeSet::new());
        let (root, threads) = (root.to_owned(), Threads::find(proc));
        let (spare, refused, brake, held, guard) = (None, None, None, false, None);
        let mut cpusets = Cpusets {
            root,
            journal,
            limited,
            left_alone,
            threads,
            spare,
            refused,
            brake,
            held,
            guard,
        };
        cpusets.enable()?;
        if brakes {
            cpusets.brake = Brake::prepare(&cpusets.root, &mut cpusets.journal);
        }
        match Spare::prepare(&cpusets.root) {
            Ok(spare) => cpusets.spare = spare,
            Err(error) => cpusets.refused = Some(error.to_string()),
        }
        Ok(cpusets)
    }

    /// Enables the controllers. Others, such as systemd, may disable them, which removes all sets.
    fn enable(&mut self) -> Result<(), CpusetError> {
        if self.brake.is_some() && !lists(&self.root, CONTROL, brake::CONTROLLER)? {
            self.brake = Brake::prepare(&self.root, &mut self.journal);
        }
        if lists(&self.root, CONTROL, CONTROLLER)? {
            return Ok(());
        }
        self.limited.clear();
        self.journal.enable(CONTROLLER)?;
        fs::write(self.root.join(CONTROL), format!("+{CONTROLLER}"))
            .map_err(|error| CpusetError::Enable(self.root.clone(), error))
    }

    /// Limits tasks to the vCPUs of the set `keep`; `spare` has the others that are online. Cgroups
    /// that have appeared since the last call are limited, too.
    pub fn limit(&mut self, keep: &str, spare: &str, how: How) -> Result<(), CpusetError> {
        self.enable()?;
        let there = self.groups()?;
        self.limited.retain(|group| there.contains(group));
        self.left_alone.retain(|group| there.contains(group));
        let mine = self.find_mine(&there, keep);
        let threads = self.threads.to_limit(keep, &self.journal);
        self.journal.note(&there, &mine, &threads, keep)?;
        let taken = spare::taken(&self.root).unwrap_or_default();
        if !set::covers(spare, &taken) || !self.left_alone.is_empty() {
            self.give_back()?;
        }
        let brake = self.brake.as_ref().filter(|_| how.brake);
        let braked = brake.map(|brake| brake.stop(&mine, &mut self.journal));
        let done = self.limit_each(mine, keep);
        self.threads.limit(threads, keep);
        let released = self.release(braked);
        done?;
        let partition = self.spare.as_ref().filter(|_| how.part && self.reaches_root());
        if let Some(Err(error)) = partition.map(|partition| partition.take(spare)) {
            self.refused = Some(error.to_string());
        }
        released
    }

    /// Releases the braked cgroups, and those that an earlier release has failed for.
    fn release(&mut self, braked: Option<Braked>) -> Result<(), CpusetError> {
        let mut released = braked.map_or(Ok(()), Braked::release);
        if self.held {
            released = brake::release_all(&self.root, &self.journal);
        }
        if let (Err(error), false) = (&released, self.held) {
            note!("unspin: {error}");
        }
        self.held = released.is_err();
        released
    }

    /// Returns the cgroups that still have to be limited. Records those that somebody else has set.
    fn find_mine(&mut self, there: &[String], keep: &str) -> Vec<String> {
        let mut mine = Vec::new();
        for group in there {
            let folder = self.root.join(group);
            // The cgroup may have gone meanwhile.
            let Ok(now) = fs::read_to_string(folder.join(CPUS)) else { continue };
            let now = now.trim();
            let free = is_free(&folder, now, self.journal.all());
            if free {
                self.left_alone.remove(group);
            } else if self.left_alone.contains(group) {
                continue;
            }
            if !free && !self.journal.wrote(group, now) {
                self.limited.remove(group);
                self.left_alone.insert(group.clone());
            } else if now != keep || !self.limited.contains(group) {
                mine.push(group.clone());
            }
        }
        mine
    }

    fn limit_each(&mut self, groups: Vec<String>, keep: &str) -> Result<(), CpusetError> {
        let mut done = Ok(());
        for group in groups {
            let file = self.root.join(&group).join(CPUS);
            match fs::write(&file, keep) {
                Ok(()) => {
                    self.limited.insert(group);
                }
                Err(_) if !file.exists() => {}
                Err(error) => done = Err(CpusetError::Limit(file, error)),
            }
        }
        done
    }

    /// Lifts the limit. A cgroup for which this fails still counts as limited.
    pub fn lift(&mut self, brake: bool) -> Result<(), CpusetError> {
        let mut failed = self.give_back();
        if self.spare.is_some() {
            self.refused = None;
        }
        let limited: Vec<_> = self.limited.iter().cloned().collect();
        let brake = self.brake.as_ref().filter(|_| brake);
        let braked = brake.map(|brake| brake.stop(&limited, &mut self.journal));
        for group in std::mem::take(&mut self.limited) {
            match clear(&self.root, &group, &self.journal) {
                Cleared::Lifted => {
                    let says = set::says(&self.root.join(&group).join(CPUS));
                    self.journal.forget(&group, &says);
                }
                Cleared::Foreign => {
                    self.left_alone.insert(group);
                }
                Cleared::Failed(error) => {
                    failed = Err(CpusetError::Lift(self.root.join(&group).join(CPUS), error));
                    self.limited.insert(group);
                }
            }
        }
        let released = self.release(braked);
        self.threads.lift(&mut self.journal);
        self.journal.forget_ended();
        // From now on these sets may be somebody else's, also for a process that lifts limits after
        // a crash.
        let saved = self.journal.save_what_is_new();
        failed.and(released).and(saved)
    }

    fn groups(&self) -> Result<Vec<String>, CpusetError> {
        groups(&self.root).map_err(|error| CpusetError::Read(self.root.clone(), error))
    }

    /// Returns whether a limit also applies to tasks of the root cgroup.
    pub fn reaches_root(&self) -> bool {
        self.spare.is_some() && self.refused.is_none() && self.left_alone.is_empty()
    }

    /// Returns why the other vCPUs are not isolated, though the kernel may support partitions.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    fn give_back(&self) -> Result<(), CpusetError> {
        let failed = |error| CpusetError::Partition(self.root.join(spare::GROUP), error);
        spare::give_back(&self.root).map_err(failed)
    }

    /// Replaces the set that means all vCPUs, also in the cgroups that have the old one.
    pub fn replace_all(&mut self, all: &str) -> Result<(), CpusetError> {
        let old = self.journal.replace_all(all)?;
        for group in self.groups()? {
            let file = self.root.join(&group).join(CPUS);
            let has_old = |text: String| text.trim() == old && self.journal.wrote(&group, &old);
            if old != all && fs::read_to_string(&file).is_ok_and(has_old) {
                fs::write(&file, all).map_err(|error| CpusetError::Lift(file, error))?;
            }
        }
        Ok(())
    }

    /// Returns the number of cgroups that are limited now.
    pub fn limited(&self) -> usize {
        self.limited.len()
    }

    /// Returns the cgroups that somebody else has set.
    pub fn left_alone(&self) -> impl Iterator<Item = &str> {
        self.left_alone.iter().map(String::as_str)
    }
}

impl Drop for Cpusets {
    fn drop(&mut self) {
        match restore(&mut self.journal) {
            Ok(_) => self.guard.take().into_iter().for_each(Guard::dismiss),
            Err(error) => note!("unspin: {error}"),
        }
    }
}

/// Lifts the limits of a killed process, and returns the number of cgroups that had one. `patience`
/// is how long to wait for a process that is about to end.
pub fn restore_after_crash(folder: &Path, patience: Duration) -> Result<usize, CpusetError> {
    if !Journal::is_in(folder) {
        return Ok(0);
    }
    restore(&mut Journal::open(folder, patience)?)
}

/// Lifts every limit that the journal names, and clears the journal if none remains.
fn restore(journal: &mut Journal) -> Result<usize, CpusetError> {
    let Some(root) = journal.root() else { return Ok(0) };
    let mut cleared = 0;
    let mut failed = spare::restore(&root)
        .map_err(|error| CpusetError::Partition(root.join(spare::GROUP), error));
    for group in journal.groups() {
        let file = root.join(group).join(CPUS);
        let limits = |set: &str| !set::covers(set, journal.all()) && journal.wrote(group, set);
        // A set that cannot be read may be a limit.
        if set::read(&file).is_ok_and(|set| !limits(&set)) {
            continue;
        }
        match clear(&root, group, journal) {
            Cleared::Lifted => cleared += 1,
            Cleared::Foreign => {}
            Cleared::Failed(error) => failed = Err(CpusetError::Lift(file, error)),
        }
    }
    // Release before the kernel threads, which can take long.
    let released = brake::release_all(&root, journal);
    journal.threads().for_each(|pid| kthreads::free(pid, journal));
    released.and(failed)?;
    // Keep the controller if another cgroup has a set: the set would be lost with it.
    let is_used = |group: &String| {
        let says = |file: &str| fs::read_to_string(root.join(group).join(file)).unwrap_or_default();
        !is_free(&root.join(group), says(CPUS).trim(), journal.all())
            || OTHERS.iter().any(|file| !says(file).trim().is_empty())
    };
    // The kernel refuses to disable a controller for a cgroup that passes it on.
    let disable = |controller| fs::write(root.join(CONTROL), format!("-{controller}"));
    let groups = groups(&root).map_err(|error| CpusetError::Lift(root.clone(), error))?;
    if journal.enabled(CONTROLLER) && !groups.iter().any(is_used) {
        let _ = disable(CONTROLLER);
    }
    let is_braked = |group: &String| brake::is_used(&root, group);
    if journal.enabled(brake::CONTROLLER) && !groups.iter().any(is_braked) {
        let _ = disable(brake::CONTROLLER);
    }
    journal.end();
    Ok(cleared)
}

/// Returns whether nobody limits a cgroup that has this set: the set is empty or has all vCPUs, and
/// the cgroup is not a partition.
fn is_free(group: &Path, set: &str, all: &str) -> bool {
    let kind = fs::read_to_string(group.join("cpuset.cpus.partition")).unwrap_or_default();
    (set.is_empty() || set::covers(set, all)) && ["", "member"].contains(&kind.trim())
}

/// Clears a cgroup's set, if unspin has written it.
fn clear(root: &Path, group: &str, journal: &Journal) -> Cleared {
    let file = root.join(group).join(CPUS);
    let now = match set::read(&file) {
        Ok(now) => now,
        Err(error) => return Cleared::Failed(error),
    };
    match now.as_str() {
        "" => return Cleared::Lifted,
        set if !journal.wrote(group, set) => return Cleared::Foreign,
        _ => {}
    }
    let cleared = fs::write(&file, "\n").or_else(|error| match error.kind() {
        io::ErrorKind::StorageFull => fs::write(&file, journal.all()),
        _ => Err(error),
    });
    match cleared {
        Err(error) if file.exists() => Cleared::Failed(error),
        _ => Cleared::Lifted,
    }
}

fn groups(root: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(root)?.collect::<Result<Vec<_>, _>>()?;
    let folders =
        entries.into_iter().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter(|name| name != spare::GROUP).collect())
}

#[cfg(test)]
#[path = "cpusets_tests.rs"]
mod tests;
