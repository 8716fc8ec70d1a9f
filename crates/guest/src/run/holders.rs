//! Tasks that always count as holders of what others wait for, because neither the kernel
//! nor glibc can show what they hold: by name, or by cgroup.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use unspin_model::class::{Class, Classified};

/// As many names, and as many cgroups, as bpf/sched/run.h has places for.
const PLACES: usize = 8;
/// The longest name of a thread in bytes; the kernel cuts longer ones.
const NAME: usize = 15;

/// Names of threads, and cgroups whose tasks, those of their descendants included, are
/// meant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holders {
    names: [[u8; NAME + 1]; PLACES],
    cgroups: [u64; PLACES],
}

/// What cannot be meant.
#[derive(Debug, thiserror::Error)]
pub enum HoldersError {
    /// More than the scheduler keeps.
    #[error("{0} {1} are given, and at most {PLACES} are allowed")]
    TooMany(usize, &'static str),
    /// No thread is called so.
    #[error(
        "no thread is called `{0}`: a name has 1 to {NAME} bytes, longer ones are cut by the kernel"
    )]
    Name(String),
    /// It is not a cgroup, or it is one of version 1.
    #[error(
        "{0} is not a cgroup of version 2: give its folder, such as /sys/fs/cgroup/system.slice \
         (`findmnt -t cgroup2` says where they are)"
    )]
    Cgroup(PathBuf),
}

impl Classified for HoldersError {
    fn class(&self) -> Class {
        Class::Usage
    }
}

impl Holders {
    /// Threads of these names, and the tasks of the cgroups whose folders these are.
    pub fn new(names: &[String], cgroups: &[PathBuf]) -> Result<Holders, HoldersError> {
        for (count, what) in [(names.len(), "names"), (cgroups.len(), "cgroups")] {
            if count > PLACES {
                return Err(HoldersError::TooMany(count, what));
            }
        }
        let mut holders = Holders::default();
        for (place, name) in holders.names.iter_mut().zip(names) {
            if name.is_empty() || name.len() > NAME {
                return Err(HoldersError::Name(name.clone()));
            }
            place[..name.len()].copy_from_slice(name.as_bytes());
        }
        for (place, folder) in holders.cgroups.iter_mut().zip(cgroups) {
            *place = id(folder).ok_or_else(|| HoldersError::Cgroup(folder.clone()))?;
        }
        Ok(holders)
    }

    /// As bpf/sched/run.h has them: two words a name, and a word a cgroup.
    pub(super) fn words(&self) -> Vec<u64> {
        let halves = self.names.iter().flat_map(|name| name.chunks_exact(8));
        let names = halves.map(|half| u64::from_ne_bytes(half.try_into().expect("8 bytes")));
        names.chain(self.cgroups).collect()
    }
}

/// A cgroup's id is the inode of its folder.
fn id(folder: &Path) -> Option<u64> {
    let is_cgroup = statfs(folder).ok()?.filesystem_type() == CGROUP2_SUPER_MAGIC;
    Some(folder.metadata().ok()?.ino()).filter(|_| is_cgroup && folder.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fill_the_places_that_the_programs_read() {
        let holders = Holders::new(&["postgres".into(), "a".into()], &[]).unwrap();
        let words = holders.words();
        assert_eq!(words.len(), 3 * PLACES);
        assert_eq!(words[0].to_ne_bytes(), *b"postgres");
        assert_eq!((words[1], words[2].to_ne_bytes()[0], words[4]), (0, b'a', 0));
    }

    #[test]
    fn what_cannot_be_meant_is_said() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            Holders::new(&names, &[]).unwrap_err().to_string()
        };
        assert!(names(&["a name that is too long"]).starts_with("no thread is called `a name"));
        assert!(names(&[""]).starts_with("no thread is called ``"));
        assert_eq!(names(&["x"; 9]), "9 names are given, and at most 8 are allowed");
        let error = Holders::new(&[], &["/proc".into()]).unwrap_err().to_string();
        assert!(error.starts_with("/proc is not a cgroup of version 2"), "{error}");
    }
}
