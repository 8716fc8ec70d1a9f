//! Unpacks packages without installing them.

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

fn with_extension(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, SourcesError> {
    let files = fs::read_dir(folder).map_err(|e| SourcesError::io("read", folder, e))?;
    let paths = files.flatten().map(|file| file.path());
    let mut found: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    found.sort();
    Ok(found)
}
