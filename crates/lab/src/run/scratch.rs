//! Temporary folders: in the cache for large images, in /tmp for sockets. Folders that a killed
//! program left behind are removed later.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};

use super::LabError;

/// Name prefix of folders for images.
pub const IMAGES: &str = "unspin-";
/// Name prefix of folders for sockets. In /tmp, the names of other folders begin with `unspin-`,
/// too.
pub const SOCKETS: &str = "unspin-vm-";
/// Mode of the folders. Anyone who can write to a socket of QEMU's can end its guest.
const MODE: u32 = 0o700;
const SWEPT_AFTER: Duration = Duration::from_secs(24 * 3600);

/// A folder that is removed when this value is dropped. Until then, a lock protects it from
/// removal by other processes.
#[derive(Debug)]
pub struct Scratch {
    folder: tempfile::TempDir,
    _lock: Option<Flock<File>>,
}

impl Scratch {
    /// Makes a new folder in `parent`, which is created if it does not exist. Other users cannot
    /// read the folder.
    pub fn in_(parent: &Path, prefix: &str) -> Result<Scratch, LabError> {
        let error = |source| LabError::Write { path: parent.to_owned(), source };
        fs::create_dir_all(parent).map_err(error)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(prefix).permissions(Permissions::from_mode(MODE));
        let folder = builder.tempdir_in(parent).map_err(error)?;
        let lock = lock(folder.path());
        if let Ok(data) = fs::metadata(folder.path()) {
            sweep(parent, prefix, data.uid());
        }
        Ok(Scratch { folder, _lock: lock })
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes folders that killed programs of this user left behind: those whose lock is free. Older
/// versions took no lock, so a folder must also be a day old.
fn sweep(parent: &Path, prefix: &str, user: u32) {
    let is_left = |folder: &Path| {
        // Symbolic links are not followed, because any user can make one in /tmp.
        let Ok(data) = fs::symlink_metadata(folder) else { return false };
        let old = |at: SystemTime| at.elapsed().is_ok_and(|age| age > SWEPT_AFTER);
        data.is_dir() && data.uid() == user && data.modified().is_ok_and(old)
    };
    let folders = fs::read_dir(parent).into_iter().flatten().flatten();
    for folder in folders {
        let path = folder.path();
        let is_scratch = folder.file_name().as_encoded_bytes().starts_with(prefix.as_bytes());
        if is_scratch && is_left(&path) && lock(&path).is_some() {
            // A folder that cannot be removed wastes space but does no other harm.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

fn lock(folder: &Path) -> Option<Flock<File>> {
    Flock::lock(File::open(folder).ok()?, FlockArg::LockExclusiveNonblock).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    /// Sets the folder's modification time to a day and a second ago.
    fn age(folder: &Path) {
        let then = SystemTime::now() - SWEPT_AFTER - Duration::from_secs(1);
        File::open(folder).unwrap().set_modified(then).unwrap();
    }

    #[test]
    fn only_what_is_old_and_nobodys_is_swept() {
        let parent = tempfile::tempdir().unwrap();
        let used = Scratch::in_(parent.path(), IMAGES).unwrap();
        age(used.path());
        let [left, young, other] = ["unspin-left", "unspin-young", "kernels"].map(|name| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        });
        fs::write(left.join("image"), "large").unwrap();
        age(&left);
        age(&other);
        let new = Scratch::in_(parent.path(), IMAGES).unwrap();
        let there = [used.path(), &left, &young, &other, new.path()].map(Path::exists);
        assert_eq!(there, [true, false, true, true, true]);
    }

    #[test]
    fn what_is_another_users_or_a_link_is_not_swept() {
        let [parent, elsewhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let foreign = parent.path().join("unspin-vm-foreign");
        fs::create_dir(&foreign).unwrap();
        age(&foreign);
        age(elsewhere.path());
        let link = parent.path().join("unspin-vm-link");
        symlink(elsewhere.path(), &link).unwrap();
        // Only root can change a folder's owner.
        let given = chown(&foreign, Some(12_345), None).is_ok();
        let new = Scratch::in_(parent.path(), SOCKETS).unwrap();
        assert!(link.is_symlink() && foreign.exists() == given);
        assert_eq!(fs::metadata(new.path()).unwrap().mode() & 0o777, MODE);
    }
}
