//! Gets a Debian source package without installing it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::{self, PrivateApt};
use crate::cache::cache_dir;
use crate::command::{Runner, need};
use crate::{Progress, SourcesError, deb};

/// Where source packages are looked for when the system's own sources lack them.
const SUITES: &[&str] = &["bookworm-security", "trixie-security", "trixie-backports"];

/// A version of a source package, and where it is. Nothing has been downloaded yet.
pub(super) struct Offer {
    pub(super) name: String,
    /// The package's version, such as `6.12.117-1~deb12u1`.
    pub(super) version: String,
    place: Place,
}

enum Place {
    /// The package is installed: the path of its tarball.
    Installed(PathBuf),
    /// The system's apt knows it. Its lists may be stale, and only root may refresh them.
    System,
    /// Debian's archive has it, by lists of our own.
    Debian(PrivateApt),
}

impl Offer {
    /// Stands for the content of the package.
    pub(super) fn identity(&self) -> String {
        format!("{} {}", self.name, self.version)
    }

    /// The path of the tarball. Downloads go to `work`. `None` if the system's apt offers what
    /// its mirror no longer has: [`debian`] knows what there is.
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

    /// Whether the package could be had.
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

/// The package `name` as it is installed, else as the system's apt knows it. Needs no network
/// and writes nothing.
pub(super) fn known(name: &str) -> Option<Offer> {
    installed(name).or_else(|| system(name))
}

/// Where the package puts its tarball, relative to the root.
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

/// The newest version in Debian's archive.
///
/// # Errors
/// When the archive cannot be asked, or lacks the package.
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
    /// One that is installed, with its tarball at `path`.
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
