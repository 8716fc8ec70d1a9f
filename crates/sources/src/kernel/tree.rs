//! Source trees: unpacked and patched once, then kept, and built out of tree.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::KernelError;
use super::package::{self, Tarball};
use super::recipe::Recipe;
use super::spec::{PINNED, Source};
use crate::cache::{Staging, cache_dir};
use crate::command::Runner;
use crate::key::Digest;
use crate::{Progress, SourcesError, overlay, patch};

/// A source tree that is ready to be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) path: PathBuf,
    /// Package and version, or the path.
    pub(super) source: String,
    /// Stands for the content.
    pub(super) identity: String,
}

/// The tree of `source`, with the recipe's headers and patches.
pub(super) fn prepare(
    source: &Source,
    recipe: &Recipe,
    staging: &Staging,
    runner: &Runner,
    progress: &mut dyn FnMut(Progress),
) -> Result<Tree, KernelError> {
    let name = match source {
        Source::Dir(path) => return folder(path),
        Source::Package(name) => name,
        Source::Lab | Source::LabCvm | Source::LabEs => PINNED,
    };
    let work = staging.work();
    fs::create_dir_all(&work).map_err(|e| SourcesError::io("create", &work, e))?;
    progress(Progress::stage("source", name));
    let tarball = package::tarball(name, &work, runner, progress)?;
    let text = format!("{name} {}", tarball.version);
    let home = cache_dir().join("sources");
    let path = home.join(format!("{name}_{}_{}", tarball.version, recipe.tree_digest()));
    if !path.is_dir() {
        progress(Progress::stage("unpack", &text));
        unpack(&tarball, recipe, &work.join("source"), runner)?;
        remove_older(&home, name)?;
        fs::create_dir_all(&home).map_err(|e| SourcesError::io("create", &home, e))?;
        fs::rename(work.join("source"), &path).map_err(|e| SourcesError::io("create", &path, e))?;
    }
    Ok(Tree { path, identity: text.clone(), source: text })
}

fn unpack(
    tarball: &Tarball,
    recipe: &Recipe,
    into: &Path,
    runner: &Runner,
) -> Result<(), KernelError> {
    fs::create_dir_all(into).map_err(|e| SourcesError::io("create", into, e))?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--xz", "--strip-components=1", "--no-same-owner", "--file"]);
    tar.arg(&tarball.path).arg("--directory").arg(into);
    runner.run("unpacking the source", &mut tar, &mut |_| ())?;
    overlay::headers(into, &recipe.headers)?;
    recipe.patches.iter().try_for_each(|(name, text)| patch::apply(into, name, text, runner))?;
    Ok(())
}

/// Trees are large: one per package is kept.
fn remove_older(home: &Path, name: &str) -> Result<(), KernelError> {
    for folder in fs::read_dir(home).into_iter().flatten().flatten() {
        if folder.file_name().to_string_lossy().starts_with(&format!("{name}_")) {
            let folder = folder.path();
            fs::remove_dir_all(&folder).map_err(|e| SourcesError::io("remove", &folder, e))?;
        }
    }
    Ok(())
}

/// A tree of the user's own: used as it is, told apart by its files' sizes and times.
fn folder(path: &Path) -> Result<Tree, KernelError> {
    let path = path.canonicalize().map_err(|e| SourcesError::io("open the source", path, e))?;
    let makefile = path.join("Kconfig");
    fs::metadata(&makefile)
        .map_err(|e| SourcesError::io("find a kernel source's", &makefile, e))?;
    let source = path.display().to_string();
    let mut digest = Digest::new();
    digest.add(&source);
    walk(&path, &mut digest).map_err(|e| SourcesError::io("read", &path, e))?;
    Ok(Tree { path, source, identity: digest.short() })
}

fn walk(folder: &Path, digest: &mut Digest) -> std::io::Result<()> {
    let mut files = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    files.sort_by_key(|file| file.file_name());
    for file in files.iter().filter(|file| file.file_name() != ".git") {
        let data = file.metadata()?;
        if data.is_dir() {
            walk(&file.path(), digest)?;
        } else {
            let name = file.path();
            let (size, s, ns) = (data.size(), data.mtime(), data.mtime_nsec());
            digest.add(&format!("{} {size} {s}.{ns:09}", name.display()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_another_tree() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("Kconfig"), "a").unwrap();
        fs::create_dir(home.path().join(".git")).unwrap();
        let before = folder(home.path()).unwrap();
        fs::write(home.path().join(".git/index"), "x").unwrap();
        assert_eq!(before, folder(home.path()).unwrap());
        fs::write(home.path().join("Kconfig"), "ab").unwrap();
        assert_ne!(before.identity, folder(home.path()).unwrap().identity);
    }

    #[test]
    fn a_folder_without_kconfig_is_no_source() {
        let home = tempfile::tempdir().unwrap();
        let error = folder(home.path()).unwrap_err().to_string();
        assert!(error.contains("Kconfig"), "{error}");
    }
}
