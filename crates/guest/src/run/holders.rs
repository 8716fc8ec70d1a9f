//! Tasks that always count as lock holders, by name or by cgroup: neither the kernel nor glibc can
//! show what they hold.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use unspin_model::class::{Class, Classified};

/// The number of names, and of cgroups, that bpf/sched/run.h has room for.
const PLACES: usize = 8;
/// The longest name of a thread in bytes; the kernel truncates longer ones.
const NAME: usize = 15;

/// The names of the threads, and the cgroups of the tasks, including descendant cgroups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holders {
    names: [[u8; NAME + 1]; PLACES],
    cgroups: [u64; PLACES],
}

/// The errors in names and cgroups.
#[derive(Debug, thiserror::Error)]
pub enum HoldersError {
    /// More names or cgroups are given than the scheduler keeps.
    #[error("{0} {1} are given, and at most {PLACES} are allowed")]
    TooMany(usize, &'static str),
    /// No thread can have this name.
    #[error(
        "no thread is called `{0}`: a name has 1 to {NAME} bytes, longer ones are cut by the kernel"
    )]
    Name(String),
    /// The folder is not a cgroup, or it is a cgroup of version 1.
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
    /// Selects threads by their names, and tasks by the folders of their cgroups.
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

    /// Returns the layout of bpf/sched/run.h: two words per name, and one per cgroup.
    pub(super) fn words(&self) -> Vec<u64> {
        let halves = self.names.iter().flat_map(|name| name.chunks_exact(8));
        let names = halves.map(|half| u64::from_ne_bytes(half.try_into().expect("8 bytes")));
        names.chain(self.cgroups).collect()
    }
}

/// Returns the id of a cgroup, which is the inode of its folder.
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
