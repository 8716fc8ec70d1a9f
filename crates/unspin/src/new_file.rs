//! Files that are written: an old one is there until the new one is complete.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::NamedTempFile;

/// A file being written. Where one of this name exists, it is replaced by [`NewFile::finish`] in
/// one step, and stays as it is if that is not reached. Where none exists, others can read the
/// new one while it grows.
pub struct NewFile {
    path: PathBuf,
    file: Kind,
}

enum Kind {
    /// Replaces the file at `path`.
    Replacement(NamedTempFile),
    /// Has this name already.
    Fresh(File),
    /// A terminal, a pipe or a device, which is never replaced.
    Special(File),
}

impl NewFile {
    /// Opens the file beside its final name.
    pub fn create(path: &Path) -> anyhow::Result<NewFile> {
        let file = open(path).with_context(|| format!("cannot write {}", path.display()))?;
        // What a symbolic link points to is replaced, not the link.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(NewFile { path, file })
    }

    /// Standard output, as it is.
    pub fn stdout() -> anyhow::Result<NewFile> {
        let copy = io::stdout().as_fd().try_clone_to_owned().context("standard output")?;
        Ok(NewFile { path: "-".into(), file: Kind::Special(copy.into()) })
    }

    /// The file is complete: it is on the disk when this returns, under its name.
    pub fn finish(self) -> anyhow::Result<()> {
        let NewFile { path, file } = self;
        let finished = match file {
            Kind::Replacement(new) => replace(new, &path),
            Kind::Fresh(file) => file.sync_all(),
            Kind::Special(_) => Ok(()),
        };
        finished.with_context(|| format!("cannot write {}", path.display()))
    }

    /// There will be no such file.
    pub fn discard(self) {
        if let Kind::Fresh(_) = self.file {
            // It is empty, or incomplete: if it cannot be removed, that says enough.
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
    // Opening also finds out whether this user may write it.
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
    // Root keeps the owner; others own what they may replace, or cannot give it away.
    let _ = fchown(new.as_file(), Some(about.uid()), Some(about.gid()));
    Ok(Kind::Replacement(new))
}

fn replace(new: NamedTempFile, path: &Path) -> io::Result<()> {
    new.as_file().sync_all()?;
    new.persist(path)?;
    // The name is on the disk only with the folder.
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
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
