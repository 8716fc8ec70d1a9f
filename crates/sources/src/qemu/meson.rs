//! Meson, which configures QEMU: the system's where it is new enough, else Debian's,
//! unpacked into the cache and seen by nobody else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::fetch::{archive, sources_dir};
use crate::apt::{newest, version};
use crate::cache::{Staging, sync};
use crate::command::Runner;
use crate::{Progress, SourcesError, deb};

/// The distribution's Python. Another one in `PATH` does not see the distribution's Meson.
pub(super) const PYTHON: &str = "/usr/bin/python3";
/// The oldest Meson that QEMU 10.0 accepts.
const OLDEST: &str = "1.5.0";
/// Where Debian's package has its modules.
const MODULES: &str = "usr/lib/python3/dist-packages";
/// Prints the version of the Meson that QEMU's configure would find.
const QUERY: &str = "import importlib.metadata as m; print(m.version('meson'))";

/// The folder to put on Python's module path; `None` if the system's Meson will do.
pub(super) fn modules(
    staging: &Staging,
    runner: &Runner,
    progress: &mut dyn FnMut(Progress),
) -> Result<Option<PathBuf>, SourcesError> {
    if system().is_some_and(|found| version::compare(&found, OLDEST).is_ge()) {
        return Ok(None);
    }
    let home = sources_dir();
    if let Some(cached) = cached(&home) {
        return Ok(Some(cached.join(MODULES)));
    }
    progress(Progress::stage("meson", format!("Meson {OLDEST} or newer")));
    let apt = archive(runner, progress)?;
    let versions = apt.versions("meson", runner)?;
    let package = newest(&versions, "meson").ok_or_else(|| apt.lacks("meson", runner))?;
    let (downloads, root) = (staging.work().join("meson-deb"), staging.work().join("meson"));
    fs::create_dir_all(&downloads).map_err(|e| SourcesError::io("create", &downloads, e))?;
    apt.download(std::slice::from_ref(package), &downloads, runner, progress)?;
    deb::unpack_all(&downloads, &root, runner)?;
    let folder = home.join(format!("meson_{}", package.version));
    fs::create_dir_all(&home).map_err(|e| SourcesError::io("create", &home, e))?;
    // As for entries of the cache: what has this name is taken for whole.
    sync(&root)?;
    fs::rename(&root, &folder).map_err(|e| SourcesError::io("create", &folder, e))?;
    Ok(Some(folder.join(MODULES)))
}

/// The version of the Meson that [`PYTHON`] sees.
fn system() -> Option<String> {
    let mut python = Command::new(PYTHON);
    let output = python.args(["-c", QUERY]).env_remove("PYTHONPATH").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The newest unpacked Meson below `home`.
fn cached(home: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(home).into_iter().flatten().flatten();
    let named = folders.filter_map(|folder| {
        let version = folder.file_name().to_str()?.strip_prefix("meson_")?.to_owned();
        Some((version, folder.path()))
    });
    let fits = named.filter(|(found, path)| {
        version::compare(found, OLDEST).is_ge() && path.join(MODULES).is_dir()
    });
    fits.max_by(|a, b| version::compare(&a.0, &b.0)).map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_complete_meson_is_taken() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(cached(home.path()), None);
        for version in ["1.4.0-1", "1.7.0-1", "1.10.0-1"] {
            let folder = home.path().join(format!("meson_{version}")).join(MODULES);
            fs::create_dir_all(folder).unwrap();
        }
        fs::create_dir(home.path().join("meson_2.0.0-1")).unwrap();
        assert_eq!(cached(home.path()), Some(home.path().join("meson_1.10.0-1")));
    }

    #[test]
    fn an_old_meson_is_as_good_as_none() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("meson_1.0.1-5").join(MODULES)).unwrap();
        assert_eq!(cached(home.path()), None);
    }
}
