//! The root cgroup, whose processes no limit reaches.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::ROOT;

/// The cgroup for a command that would else run in the root.
const OWN: &str = "unspin";

/// A cgroup for a command that starts now: where this process is in the root, one of its own.
/// Elsewhere the command inherits one that can be limited.
pub fn own_cgroup() -> io::Result<Option<PathBuf>> {
    let ours = fs::read_to_string("/proc/self/cgroup")?;
    if !ours.lines().any(|line| line == "0::/") {
        return Ok(None);
    }
    let folder = Path::new(ROOT).join(OWN);
    match fs::create_dir(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(Some(folder)),
    }
}

/// Removes that cgroup if nobody is left in it.
pub fn remove_own_cgroup() {
    let _ = fs::remove_dir(Path::new(ROOT).join(OWN));
}

/// User processes in the root cgroup, a count.
pub(super) fn processes() -> u64 {
    let list = fs::read_to_string(Path::new(ROOT).join("cgroup.procs")).unwrap_or_default();
    let has_words =
        |pid: &&str| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| !words.is_empty());
    list.lines().filter(has_words).count() as u64
}
