//! Obtains a Debian source package without installing it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::{self, PrivateApt};
use crate::cache::cache_dir;
use crate::command::{Runner, need};
use crate::{Progress, SourcesError, deb};

/// The suites that are searched if the system's own sources lack the package.
const SUITES: &[&str] = &["bookworm-security", "trixie-security", "trixie-backports"];

/// A version of a source package and its location, before any download.
pub(super) struct Offer {
    pub(super) name: String,
    /// The package's version, such as `6.12.117-1~deb12u1`.
    pub(super) version: String,
    place: Place,
}

enum Place {
    /// The package is installed and has its tarball at this path.
    Installed(PathBuf),
    /// The system's apt lists the package. These lists may be stale, and only root may refresh
    /// them.
    System,
    /// Debian's archive has the package, according to the private apt's lists.
    Debian(PrivateApt),
}

impl Offer {
    /// Returns a text that identifies the package's content.
    pub(super) fn identity(&self) -> String {
        format!("{} {}", self.name, self.version)
    }

    /// Returns the path of the tarball, which it downloads to `work` if necessary. Returns `None`
    /// if the system's apt offers a version that its mirror no longer has. [`debian`] finds the
    /// current version.
    pub(super) fn tarball(
        &self,
        work: &Path,
        runner: &Runner,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<PathBuf>, SourcesError> {
        if let Place::Installed(path) = &self.place {
            return Ok(Some(path.clone()));
        }
        need("download the kernel's source", apt::TOOLS)?;
        let debs = work.join("debs");
        fs::create_dir_all(&debs).map_err(|e| SourcesError::io("create", &debs, e))?;
        if !self.download(&debs, runner, progress)? {
            return Ok(None);
        }
        let root = work.join("package");
        deb::unpack_all(&debs, &root, runner)?;
        let path = root.join(inside(&self.name));
        fs::metadata(&path).map_err(|e| SourcesError::io("find the package's", &path, e))?;
        Ok(Some(path))
    }

    /// Downloads the package. Returns `false` if the system's apt cannot download it.
    fn download(
        &self,
        debs: &Path,
        runner: &Runner,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<bool, SourcesError> {
        if let Place::Debian(apt) = &self.place {
            let (name, version) = (self.name.clone(), self.version.clone());
            let package = apt::Package { name, version, ..apt::Package::default() };
            return apt.download(&[package], debs, runner, progress).map(|()| true);
        }
        let mut get = Command::new("apt-get");
        get.current_dir(debs).env("LC_ALL", "C").arg("download");
        get.arg(format!("{}={}", self.name, self.version));
        Ok(apt::download(&mut get, runner, progress).is_ok())
    }
}

/// Returns the installed package `name`, or else the version that the system's apt lists. The call
/// needs no network and writes no files.
pub(super) fn known(name: &str) -> Option<Offer> {
    installed(name).or_else(|| system(name))
}

/// Returns the path of the package's tarball, relative to the root.
fn inside(name: &str) -> PathBuf {
    Path::new("usr/src").join(format!("{name}.tar.xz"))
}

fn installed(name: &str) -> Option<Offer> {
    let path = Path::new("/").join(inside(name));
    let query = ["-W", "-f", "${db:Status-Status} ${Version}", name];
    let output = Command::new("dpkg-query").args(query).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.strip_prefix("installed ")?.trim().to_owned();
    path.is_file().then(|| Offer { name: name.into(), version, place: Place::Installed(path) })
}

fn system(name: &str) -> Option<Offer> {
    let mut show = Command::new("apt-cache");
    show.args(["show", "--no-all-versions", name]).env("LC_ALL", "C");
    let output = show.output().ok()?;
    let packages = apt::parse(&String::from_utf8_lossy(&output.stdout));
    let version = apt::newest(&packages, name)?.version.clone();
    Some(Offer { name: name.into(), version, place: Place::System })
}

/// Returns the newest version in Debian's archive.
///
/// # Errors
/// If the archive is unreachable or lacks the package.
pub(super) fn debian(
    name: &str,
    runner: &Runner,
    progress: &mut dyn FnMut(Progress),
) -> Result<Offer, SourcesError> {
    let apt = PrivateApt::new(&cache_dir().join("apt-source"), SUITES)?;
    progress(Progress::stage("index", format!("what {} have", SUITES.join(", "))));
    let packages = apt.packages(runner)?;
    let package = apt::newest(&packages, name).ok_or_else(|| apt.lacks(name, runner))?;
    Ok(Offer { name: name.into(), version: package.version.clone(), place: Place::Debian(apt) })
}

#[cfg(test)]
impl Offer {
    /// Returns the offer of an installed package with its tarball at `path`.
    pub(super) fn at(name: &str, version: &str, path: &Path) -> Self {
        Self { name: name.into(), version: version.into(), place: Place::Installed(path.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_is_not_installed_is_not_found() {
        assert!(installed("linux-source-0.0").is_none() && known("linux-source-0.0").is_none());
    }

    #[test]
    fn the_tarball_has_the_packages_name() {
        assert_eq!(inside("linux-source-7.3"), Path::new("usr/src/linux-source-7.3.tar.xz"));
    }
}
