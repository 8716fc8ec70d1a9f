//! The top-level cgroups whose tasks are limited to some vCPUs, by `cpuset.cpus`.
//!
//! Only a cgroup that has no set of its own is limited, so what it had before is nothing, and
//! to lift the limit is to clear the set. A set that says anything but what was written here is
//! somebody else's: it stays as it is, from then on. What is written is noted in a journal
//! first, so that a later process can clear it if this one is killed.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::journal::Journal;
use unspin_model::class::{Class, Classified};

/// The controller's name.
const CONTROLLER: &str = "cpuset";
const CONTROL: &str = "cgroup.subtree_control";
const CPUS: &str = "cpuset.cpus";

/// Why tasks cannot be limited by cgroups.
#[derive(Debug, thiserror::Error)]
pub enum CpusetError {
    /// No hierarchy of version 2 has the controller.
    #[error(
        "{0} offers no cpuset controller of cgroup version 2 (a hybrid set-up has it in version 1): \
         boot with `systemd.unified_cgroup_hierarchy=1`, or use `--actuator sched-ext`"
    )]
    NoController(PathBuf),
    /// The controller cannot be enabled.
    #[error("enable the cpuset controller in {0}: {1}")]
    Enable(PathBuf, io::Error),
    /// Another process limits vCPUs.
    #[error("another `unspin run` limits vCPUs: stop it first (its lock is {0})")]
    Taken(PathBuf),
    /// The journal cannot be written, so no limit would be lifted after a crash.
    #[error("note what is limited in {0}: {1}")]
    Journal(PathBuf, io::Error),
}

impl Classified for CpusetError {
    fn class(&self) -> Class {
        match self {
            CpusetError::Enable(_, error) | CpusetError::Journal(_, error)
                if error.kind() == io::ErrorKind::PermissionDenied =>
            {
                Class::NeedsRoot
            }
            _ => Class::Unavailable,
        }
    }
}

/// Whether the hierarchy at `root` has the controller.
pub(super) fn is_offered(root: &Path) -> bool {
    lists_it(root, "cgroup.controllers")
}

fn lists_it(root: &Path, file: &str) -> bool {
    let text = fs::read_to_string(root.join(file)).unwrap_or_default();
    text.split_ascii_whitespace().any(|word| word == CONTROLLER)
}

/// The cgroups; the limit is lifted when this is dropped.
pub struct Cpusets {
    root: PathBuf,
    journal: Journal,
    limited: BTreeSet<String>,
    left_alone: BTreeSet<String>,
}

impl Cpusets {
    /// Takes over the hierarchy at `root`, and lifts what a killed process has left limited.
    /// `folder` is for the journal.
    pub fn open(root: &Path, folder: &Path) -> Result<Cpusets, CpusetError> {
        let mut journal = Journal::open(folder)?;
        restore(&mut journal);
        if !is_offered(root) {
            return Err(CpusetError::NoController(root.to_owned()));
        }
        journal.begin(root, !lists_it(root, CONTROL))?;
        if journal.enabled() {
            fs::write(root.join(CONTROL), format!("+{CONTROLLER}"))
                .map_err(|error| CpusetError::Enable(root.to_owned(), error))?;
        }
        let root = root.to_owned();
        Ok(Cpusets { root, journal, limited: BTreeSet::new(), left_alone: BTreeSet::new() })
    }

    /// Limits all top-level cgroups to these vCPUs, a list such as `0-1`. Those that have come
    /// since the last call, too.
    pub fn limit(&mut self, cpus: &str) -> Result<(), CpusetError> {
        let mine: Vec<String> = groups(&self.root)
            .into_iter()
            .filter(|group| !self.left_alone.contains(group))
            .collect();
        self.journal.note(&mine, cpus)?;
        for group in mine {
            let file = self.root.join(&group).join(CPUS);
            // It may have gone meanwhile.
            let Ok(now) = fs::read_to_string(&file) else { continue };
            let now = now.trim();
            if now == cpus {
                self.limited.insert(group);
            } else if !now.is_empty() && !self.journal.wrote(now) {
                self.limited.remove(&group);
                self.left_alone.insert(group);
            } else if fs::write(&file, cpus).is_ok() {
                self.limited.insert(group);
            }
        }
        Ok(())
    }

    /// Lifts the limit.
    pub fn lift(&mut self) {
        for group in std::mem::take(&mut self.limited) {
            if !clear(&self.root.join(&group), &self.journal) {
                self.left_alone.insert(group);
            }
        }
    }

    /// How many cgroups are limited now.
    pub fn limited(&self) -> usize {
        self.limited.len()
    }

    /// The cgroups that somebody else has set.
    pub fn left_alone(&self) -> impl Iterator<Item = &str> {
        self.left_alone.iter().map(String::as_str)
    }
}

impl Drop for Cpusets {
    fn drop(&mut self) {
        restore(&mut self.journal);
    }
}

/// Lifts what a killed process has left limited; how many cgroups those were.
pub fn restore_after_crash(folder: &Path) -> Result<usize, CpusetError> {
    if !Journal::is_in(folder) {
        return Ok(0);
    }
    Ok(restore(&mut Journal::open(folder)?))
}

/// Lifts all that the journal names, and forgets it if nothing stays limited.
fn restore(journal: &mut Journal) -> usize {
    let Some(root) = journal.root() else { return 0 };
    let groups: Vec<PathBuf> = journal.groups().map(|group| root.join(group)).collect();
    let is_ours = |group: &&PathBuf| {
        fs::read_to_string(group.join(CPUS)).is_ok_and(|text| journal.wrote(text.trim()))
    };
    let ours: Vec<&PathBuf> = groups.iter().filter(is_ours).collect();
    let cleared = ours.iter().filter(|group| clear(group, journal)).count();
    if cleared < ours.len() {
        return cleared;
    }
    // Other cgroups' sets would go with the controller.
    let is_used = |group: &String| {
        fs::read_to_string(root.join(group).join(CPUS)).is_ok_and(|text| !text.trim().is_empty())
    };
    if journal.enabled() && !self::groups(&root).iter().any(is_used) {
        // A cgroup that hands the controller on keeps it, which the kernel sees to.
        let _ = fs::write(root.join(CONTROL), format!("-{CONTROLLER}"));
    }
    journal.end();
    cleared
}

/// Clears a set that was written here; false where it says something else.
fn clear(group: &Path, journal: &Journal) -> bool {
    let file = group.join(CPUS);
    match fs::read_to_string(&file) {
        Ok(now) if journal.wrote(now.trim()) => fs::write(&file, "\n").is_ok(),
        Ok(now) => now.trim().is_empty(),
        Err(_) => true,
    }
}

fn groups(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
#[path = "cpusets_tests.rs"]
mod tests;
