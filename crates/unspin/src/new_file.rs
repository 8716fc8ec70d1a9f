//! Writes files. An old file stays until the new one is complete.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::{NamedTempFile, PersistError};

/// A file that is being written. If a file of this name exists, [`NewFile::finish`] replaces it
/// atomically; without that call, the old file stays. If no such file exists, others can read the
/// new one while it grows.
pub struct NewFile {
    path: PathBuf,
    file: Kind,
}

enum Kind {
    /// A new file that will replace the file at `path`.
    Replacement(NamedTempFile),
    /// A new file that already has its final name.
    Fresh(File),
    /// A terminal, a pipe or a device, which is never replaced.
    Special(File),
}

impl NewFile {
    /// Opens the file next to its final name.
    pub fn create(path: &Path) -> anyhow::Result<NewFile> {
        let file = open(path).with_context(|| format!("cannot write {}", path.display()))?;
        // The file behind a symbolic link is replaced, not the link.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(NewFile { path, file })
    }

    /// Returns standard output, which is written directly.
    pub fn stdout() -> anyhow::Result<NewFile> {
        let copy = io::stdout().as_fd().try_clone_to_owned().context("standard output")?;
        Ok(NewFile { path: "-".into(), file: Kind::Special(copy.into()) })
    }

    /// Completes the file. When this call returns, the file is on the disk under its name.
    pub fn finish(self) -> anyhow::Result<()> {
        let NewFile { path, file } = self;
        let finished = match file {
            Kind::Replacement(new) => replace(new, &path),
            Kind::Fresh(file) => file.sync_all().map_err(anyhow::Error::from),
            Kind::Special(_) => Ok(()),
        };
        finished.with_context(|| format!("cannot write {}", path.display()))
    }

    /// Keeps the written part of the file and returns its path. A replacement stays next to the
    /// file that it was to replace. Returns `None` if nothing is kept.
    pub fn keep(self) -> Option<PathBuf> {
        match self.file {
            Kind::Replacement(new) => new.keep().ok().map(|(_, path)| path),
            Kind::Fresh(_) => Some(self.path),
            Kind::Special(_) => None,
        }
    }

    /// Removes the new file.
    pub fn discard(self) {
        if let Kind::Fresh(_) = self.file {
            // The file is empty or incomplete. If it cannot be removed, users notice that it is
            // incomplete.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            Kind::Replacement(file) => file.write(bytes),
            Kind::Fresh(file) | Kind::Special(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a whole file.
pub fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut file = NewFile::create(path)?;
    if let Err(error) = file.write_all(bytes) {
        file.discard();
        return Err(error).with_context(|| format!("cannot write {}", path.display()));
    }
    file.finish()
}

fn open(path: &Path) -> io::Result<Kind> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        created => return created.map(Kind::Fresh),
    }
    // Opening also checks that this user may write the file.
    let old = OpenOptions::new().write(true).open(path)?;
    let about = old.metadata()?;
    if !about.is_file() {
        return Ok(Kind::Special(old));
    }
    let path = path.canonicalize()?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut prefix = path.file_name().unwrap_or_default().to_owned();
    prefix.push(".");
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(&prefix).suffix(".part");
    let permissions = Permissions::from_mode(about.permissions().mode() & 0o777);
    let new = builder.permissions(permissions).tempfile_in(folder)?;
    // Root keeps the owner. Other users own the files that they may replace, or cannot give them
    // away.
    let _ = fchown(new.as_file(), Some(about.uid()), Some(about.gid()));
    Ok(Kind::Replacement(new))
}

fn replace(new: NamedTempFile, path: &Path) -> anyhow::Result<()> {
    if let Err(error) = new.as_file().sync_all() {
        return Err(kept(new, error));
    }
    if let Err(PersistError { error, file }) = new.persist(path) {
        return Err(kept(file, error));
    }
    // The name is on the disk only after the folder is synced.
    Ok(File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()?)
}

/// Keeps the written file where it is, because it may be the only copy of the data.
fn kept(new: NamedTempFile, error: io::Error) -> anyhow::Error {
    match new.keep() {
        Ok((_, path)) => {
            anyhow::Error::from(error).context(format!("it stays as {}", path.display()))
        }
        Err(_) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_old_file_is_there_until_the_new_one_is_complete() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.gz");
        fs::write(&path, "old").expect("write");
        let mut file = NewFile::create(&path).expect("a file");
        file.write_all(b"new").expect("write");
        assert_eq!(fs::read(&path).expect("read"), b"old");
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
        assert_eq!(fs::read(&path).expect("read"), b"old");
        write(&path, b"new").expect("write");
        assert_eq!(fs::read(&path).expect("read"), b"new");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn what_cannot_replace_the_old_file_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.gz");
        fs::write(&path, "old").expect("write");
        let mut file = NewFile::create(&path).expect("a file");
        file.write_all(b"new").expect("write");
        // A file cannot replace a folder.
        fs::remove_file(&path).expect("remove");
        fs::create_dir(&path).expect("a folder");
        let error = format!("{:#}", file.finish().expect_err("a folder has its name"));
        let (_, stays) = error.split_once("it stays as ").expect("where it is");
        let (stays, _) = stays.split_once(": ").expect("why");
        assert_eq!(fs::read(stays).expect("read"), b"new", "{error}");
    }

    #[test]
    fn a_fresh_file_grows_under_its_name_and_can_be_discarded() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.gz");
        let mut file = NewFile::create(&path).expect("a file");
        file.write_all(b"new").expect("write");
        assert_eq!(fs::read(&path).expect("read"), b"new");
        file.discard();
        assert!(!path.exists());
    }

    #[test]
    fn links_are_followed_and_devices_stay_devices() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, link) = (folder.path().join("s.gz"), folder.path().join("link"));
        fs::write(&path, "old").expect("write");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        write(&link, b"new").expect("write");
        assert_eq!(fs::read(&path).expect("read"), b"new");
        assert!(link.is_symlink());
        write(Path::new("/dev/null"), b"nothing").expect("write");
        assert!(!Path::new("/dev/null").is_file());
        assert!(NewFile::create(&folder.path().join("none/s.gz")).is_err());
    }
}
