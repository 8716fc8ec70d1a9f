//! Gets a Debian source package without installing it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::{self, PrivateApt};
use crate::cache::cache_dir;
use crate::command::{Runner, Tool, need};
use crate::{Progress, SourcesError, deb};

/// Where source packages are looked for when the system's own sources lack them.
const SUITES: &[&str] = &["bookworm-security", "trixie-security", "trixie-backports"];
const TOOLS: &[Tool] = &[("apt-get", "apt"), ("apt-cache", "apt"), ("dpkg-deb", "dpkg")];

/// A source package's tarball.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tarball {
    pub(super) path: PathBuf,
    /// The package's version, such as `6.12.117-1~deb12u1`.
    pub(super) version: String,
}

/// The tarball of the package `name`: the installed one, else the one that the system's
/// apt knows, else Debian's. Downloads go to `work`.
pub(super) fn tarball(
    name: &str,
    work: &Path,
    runner: &Runner,
    progress: &mut dyn FnMut(Progress),
) -> Result<Tarball, SourcesError> {
    if let Some(found) = installed(name) {
        return Ok(found);
    }
    need("download the kernel's source", TOOLS)?;
    let debs = work.join("debs");
    fs::create_dir_all(&debs).map_err(|e| SourcesError::io("create", &debs, e))?;
    let version = match system(name, &debs, runner, progress) {
        Some(version) => version,
        None => debian(name, &debs, runner, progress)?,
    };
    let root = work.join("package");
    deb::unpack_all(&debs, &root, runner)?;
    let path = root.join(inside(name));
    fs::metadata(&path).map_err(|e| SourcesError::io("find the package's", &path, e))?;
    Ok(Tarball { path, version })
}

/// Where the package puts its tarball, relative to the root.
fn inside(name: &str) -> PathBuf {
    Path::new("usr/src").join(format!("{name}.tar.xz"))
}

fn installed(name: &str) -> Option<Tarball> {
    let path = Path::new("/").join(inside(name));
    let query = ["-W", "-f", "${db:Status-Status} ${Version}", name];
    let output = Command::new("dpkg-query").args(query).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.strip_prefix("installed ")?.trim().to_owned();
    path.is_file().then_some(Tarball { path, version })
}

/// Downloads through the system's apt; `None` if it does not know the package or its
/// lists are stale, which only root may change.
fn system(
    name: &str,
    debs: &Path,
    runner: &Runner,
    progress: &mut dyn FnMut(Progress),
) -> Option<String> {
    let mut show = Command::new("apt-cache");
    show.args(["show", "--no-all-versions", name]).env("LC_ALL", "C");
    let packages = apt::parse(&runner.output("apt-cache show", &mut show).ok()?);
    let version = &apt::newest(&packages, name)?.version;
    let mut get = Command::new("apt-get");
    get.current_dir(debs).env("LC_ALL", "C").arg("download").arg(format!("{name}={version}"));
    apt::download(&mut get, runner, progress).ok()?;
    Some(version.clone())
}

fn debian(
    name: &str,
    debs: &Path,
    runner: &Runner,
    progress: &mut dyn FnMut(Progress),
) -> Result<String, SourcesError> {
    let apt = PrivateApt::new(&cache_dir().join("apt-source"), SUITES)?;
    progress(Progress::stage("index", format!("what {} have", SUITES.join(", "))));
    let packages = apt.packages(runner)?;
    let package = apt::newest(&packages, name).ok_or_else(|| apt.lacks(name, runner))?;
    apt.download(std::slice::from_ref(package), debs, runner, progress)?;
    Ok(package.version.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_is_not_installed_is_not_found() {
        assert_eq!(installed("linux-source-0.0"), None);
    }

    #[test]
    fn the_tarball_has_the_packages_name() {
        assert_eq!(inside("linux-source-7.3"), Path::new("usr/src/linux-source-7.3.tar.xz"));
    }
}
