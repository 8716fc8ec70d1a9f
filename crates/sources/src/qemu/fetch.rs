//! Gets source and firmware from Debian's archive, once.

use std::fs;
use std::path::{Path, PathBuf};

use super::inputs::{DEBIAN, FIRMWARE, Inputs, ORIG, SEABIOS, VERSION, file_name};
use super::{QemuError, Source};
use crate::apt::{Package, PrivateApt, newest};
use crate::cache::{Staging, cache_dir};
use crate::command::Runner;
use crate::{Progress, SourcesError, deb};

/// Where QEMU, its firmware and Meson are looked for.
const SUITES: &[&str] = &["trixie", "trixie-security"];

/// A folder with the files that [`Inputs`] names.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) folder: PathBuf,
    pub(super) inputs: Inputs,
}

/// The files of `source`, downloaded if the cache has none, or others than the pinned ones.
pub(super) fn fetch(
    source: &Source,
    staging: &Staging,
    runner: &Runner,
    progress: &mut dyn FnMut(Progress),
) -> Result<Fetched, QemuError> {
    let home = sources_dir();
    let folder = home.join(folder_name(source));
    progress(Progress::stage("check", source.version()));
    if let Ok(inputs) = checked(source, &folder) {
        return Ok(Fetched { folder, inputs });
    }
    let files = staging.work().join("files");
    download(source, &staging.work(), &files, runner, progress)?;
    let inputs = checked(source, &files)?;
    fs::create_dir_all(&home).map_err(|e| SourcesError::io("create", &home, e))?;
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|e| SourcesError::io("replace", &folder, e))?;
    }
    fs::rename(&files, &folder).map_err(|e| SourcesError::io("create", &folder, e))?;
    Ok(Fetched { folder, inputs })
}

/// What is in `folder`, if it is complete and, for the pinned source, has the pinned digests.
fn checked(source: &Source, folder: &Path) -> Result<Inputs, QemuError> {
    let inputs = Inputs::of_folder(source.version(), folder)?;
    if *source == Source::Pinned {
        inputs.check(&Inputs::pinned())?;
    }
    Ok(inputs)
}

/// Where fetched files are kept.
pub(super) fn sources_dir() -> PathBuf {
    cache_dir().join("sources")
}

/// A version that is asked for may have other firmware than the pinned one.
fn folder_name(source: &Source) -> String {
    let version = source.version().replace(':', "_");
    match source {
        Source::Pinned => format!("qemu_{version}"),
        Source::Version(_) => format!("qemu-unpinned_{version}"),
    }
}

/// apt with fresh lists of [`SUITES`].
pub(super) fn archive(
    runner: &Runner,
    progress: &mut dyn FnMut(Progress),
) -> Result<PrivateApt, SourcesError> {
    progress(Progress::stage("index", format!("packages of {}", SUITES.join(", "))));
    let apt = PrivateApt::with_sources(&cache_dir().join("apt-qemu"), SUITES)?;
    apt.update(runner)?;
    Ok(apt)
}

/// Fills `files`.
fn download(
    source: &Source,
    work: &Path,
    files: &Path,
    runner: &Runner,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), QemuError> {
    let apt = archive(runner, progress)?;
    let sources = apt.source_versions("qemu", runner)?;
    let (data, bios) =
        (apt.versions("qemu-system-data", runner)?, apt.versions("seabios", runner)?);
    let version = source.version();
    let instead = newest(&sources, "qemu").map_or(VERSION, |package| &package.version);
    let qemu = choose(&sources, "qemu", version, instead)?;
    let data = choose(&data, "qemu-system-data", version, instead)?;
    let seabios = match (source, newest(&bios, "seabios")) {
        (Source::Version(_), Some(seabios)) => seabios,
        _ => choose(&bios, "seabios", SEABIOS, VERSION)?,
    };
    let downloads = work.join("downloads");
    for folder in [&downloads, files] {
        fs::create_dir_all(folder).map_err(|e| SourcesError::io("create", folder, e))?;
    }
    apt.download_source(qemu, &downloads, runner, progress)?;
    apt.download(&[data.clone(), seabios.clone()], &downloads, runner, progress)?;
    let root = work.join("root");
    deb::unpack_all(&downloads, &root, runner)?;
    for name in [ORIG, DEBIAN] {
        take(&find(&downloads, name)?, &files.join(name))?;
    }
    for (package, path) in FIRMWARE {
        let from = root.join(path);
        if !from.is_file() {
            return Err(layout(package, path));
        }
        take(&from, &files.join(file_name(path)))?;
    }
    Ok(())
}

/// The package of that version, or an error that lists the versions that exist and the
/// source version `instead` that can be built.
fn choose<'a>(
    packages: &'a [Package],
    name: &str,
    version: &str,
    instead: &str,
) -> Result<&'a Package, QemuError> {
    let named: Vec<&Package> = packages.iter().filter(|package| package.name == name).collect();
    named.iter().find(|package| package.version == version).copied().ok_or_else(|| {
        let versions: Vec<&str> = named.iter().map(|package| package.version.as_str()).collect();
        QemuError::Gone {
            package: name.into(),
            wanted: version.into(),
            available: if versions.is_empty() { "no other".into() } else { versions.join(", ") },
            instead: instead.into(),
        }
    })
}

/// The downloaded file whose name ends in `.NAME`.
fn find(folder: &Path, name: &str) -> Result<PathBuf, QemuError> {
    let files = fs::read_dir(folder).map_err(|e| SourcesError::io("read", folder, e))?;
    let suffix = format!(".{name}");
    let mut paths = files.flatten().map(|file| file.path());
    paths
        .find(|path| path.to_string_lossy().ends_with(&suffix))
        .ok_or_else(|| layout("the source package qemu", name))
}

fn layout(package: &str, file: &str) -> QemuError {
    QemuError::Layout { package: package.into(), file: file.into() }
}

fn take(from: &Path, to: &Path) -> Result<(), SourcesError> {
    fs::rename(from, to).map_err(|e| SourcesError::io("move", from, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str) -> Package {
        Package { name: name.into(), version: version.into(), ..Package::default() }
    }

    #[test]
    fn a_version_that_is_gone_leads_to_those_that_exist() {
        let found = [package("qemu", "1:10.0.14-1"), package("qemu", "1:10.0.2-1")];
        assert_eq!(choose(&found, "qemu", "1:10.0.2-1", "x").unwrap(), &found[1]);
        let error = choose(&found, "qemu", "1:10.0.13-1", "1:10.0.14-1").unwrap_err().to_string();
        let expected = "has no qemu 1:10.0.13-1, but 1:10.0.14-1, 1:10.0.2-1; to use what it has, \
                        run: unspin lab qemu build --source-version 1:10.0.14-1; then set \
                        UNSPIN_VT_QEMU to the path that it prints as `program`";
        assert!(error.ends_with(expected), "{error}");
    }

    #[test]
    fn pinned_and_other_files_do_not_mix() {
        let pinned = folder_name(&Source::Pinned);
        assert_ne!(pinned, folder_name(&Source::Version(VERSION.into())));
        // PATH-like lists are split at colons.
        assert!(!pinned.contains(':'));
    }

    #[test]
    fn files_that_are_not_the_pinned_ones_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(checked(&Source::Pinned, folder.path()).is_err());
        for name in Inputs::pinned().files.keys() {
            fs::write(folder.path().join(name), "another file").unwrap();
        }
        let error = checked(&Source::Pinned, folder.path()).unwrap_err();
        assert!(matches!(error, QemuError::Changed { .. }), "{error}");
        checked(&Source::Version(VERSION.into()), folder.path()).unwrap();
    }

    #[test]
    fn an_unknown_layout_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("qemu_1.orig.tar.gz"), "").unwrap();
        let error = find(folder.path(), ORIG).unwrap_err().to_string();
        assert!(error.contains("orig.tar.xz"), "{error}");
    }
}
