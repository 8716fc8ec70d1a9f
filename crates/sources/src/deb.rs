//! Unpacks packages without installing them, and tarballs of sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::SourcesError;
use super::command::Runner;

/// Unpacks every package in `folder` into `root`.
pub(super) fn unpack_all(folder: &Path, root: &Path, runner: &Runner) -> Result<(), SourcesError> {
    fs::create_dir_all(root).map_err(|e| SourcesError::io("create", root, e))?;
    for deb in with_extension(folder, "deb")? {
        let mut command = Command::new("dpkg-deb");
        command.arg("--extract").arg(&deb).arg(root);
        runner.run("unpacking a package", &mut command, &mut |_| ())?;
        fs::remove_file(&deb).map_err(|e| SourcesError::io("remove", &deb, e))?;
    }
    Ok(())
}

/// Unpacks a tarball of sources into a folder, and creates the folder if necessary. The first
/// `strip` parts of each name are removed.
pub(super) fn unpack_source(
    tarball: &Path,
    into: &Path,
    strip: u32,
    runner: &Runner,
) -> Result<(), SourcesError> {
    fs::create_dir_all(into).map_err(|e| SourcesError::io("create", into, e))?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--xz", "--no-same-owner"]).arg(format!("--strip-components={strip}"));
    tar.arg("--file").arg(tarball).arg("--directory").arg(into);
    runner.run("unpacking the source", &mut tar, &mut |_| ())
}

fn with_extension(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, SourcesError> {
    let files = fs::read_dir(folder).map_err(|e| SourcesError::io("read", folder, e))?;
    let paths = files.flatten().map(|file| file.path());
    let mut found: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    found.sort();
    Ok(found)
}
