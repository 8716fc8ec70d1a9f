//! Folders for large images in the cache, and what becomes of those that a killed program left.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};

use super::LabError;

const PREFIX: &str = "unspin-";
const SWEPT_AFTER: Duration = Duration::from_secs(24 * 3600);

/// A folder that is removed when this is dropped; until then, its lock keeps it from being swept.
#[derive(Debug)]
pub struct Scratch {
    folder: tempfile::TempDir,
    _lock: Option<Flock<File>>,
}

impl Scratch {
    /// A new one in this folder, which is made if need be.
    pub fn in_(parent: &Path) -> Result<Scratch, LabError> {
        let error = |source| LabError::Write { path: parent.to_owned(), source };
        fs::create_dir_all(parent).map_err(error)?;
        sweep(parent);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent).map_err(error)?;
        let lock = lock(folder.path());
        Ok(Scratch { folder, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes what programs left that were killed: folders whose lock is free. Older programs took
/// no lock, so a folder must be a day old, too.
fn sweep(parent: &Path) {
    let old = |folder: &Path| {
        let modified = fs::metadata(folder).and_then(|data| data.modified());
        modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > SWEPT_AFTER))
    };
    let folders = fs::read_dir(parent).into_iter().flatten().flatten();
    for folder in folders {
        let path = folder.path();
        let is_scratch = folder.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        if is_scratch && path.is_dir() && old(&path) && lock(&path).is_some() {
            // What cannot be removed costs room, and nothing else.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

fn lock(folder: &Path) -> Option<Flock<File>> {
    Flock::lock(File::open(folder).ok()?, FlockArg::LockExclusiveNonblock).ok()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    /// Makes a folder look a day and a second old.
    fn age(folder: &Path) {
        let then = SystemTime::now() - SWEPT_AFTER - Duration::from_secs(1);
        File::open(folder).unwrap().set_modified(then).unwrap();
    }

    #[test]
    fn only_what_is_old_and_nobodys_is_swept() {
        let parent = tempfile::tempdir().unwrap();
        let used = Scratch::in_(parent.path()).unwrap();
        age(used.path());
        let [left, young, other] = ["unspin-left", "unspin-young", "kernels"].map(|name| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        });
        fs::write(left.join("image"), "large").unwrap();
        age(&left);
        age(&other);
        let new = Scratch::in_(parent.path()).unwrap();
        let there = [used.path(), &left, &young, &other, new.path()].map(Path::exists);
        assert_eq!(there, [true, false, true, true, true]);
    }
}
