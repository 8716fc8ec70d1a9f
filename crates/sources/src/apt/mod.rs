//! Accesses Debian's archive through apt, with a private configuration.
//!
//! This module neither uses nor changes the system's sources, lists and installed packages. apt
//! checks signatures with Debian's archive keyring. The private configuration copies only the
//! system's network settings (proxies, certificates).

mod conf;
mod index;
mod mirror;
pub(super) mod version;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) use index::{Package, newest, parse};

use super::SourcesError;
use super::command::{Runner, Tool, need};
use super::progress::Progress;
use mirror::Mirrors;

/// The public keys of Debian's archive, from the package debian-archive-keyring.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The programs that fetching needs.
pub(super) const TOOLS: &[Tool] = &[("apt-get", "apt"), ("apt-cache", "apt"), ("dpkg-deb", "dpkg")];

/// apt with its own sources, lists and cache.
pub(super) struct PrivateApt {
    home: PathBuf,
    suites: Vec<&'static str>,
}

impl PrivateApt {
    /// Prepares apt below `home` for the binary packages of these Debian suites.
    ///
    /// # Errors
    /// If apt or the keyring is missing, or the folder cannot be written.
    pub(super) fn new(home: &Path, suites: &[&'static str]) -> Result<Self, SourcesError> {
        Self::with_keyring(home, &["deb"], suites, Path::new(KEYRING))
    }

    /// Prepares apt like [`PrivateApt::new`], for binary and source packages.
    ///
    /// # Errors
    /// The errors of [`PrivateApt::new`].
    pub(super) fn with_sources(home: &Path, suites: &[&'static str]) -> Result<Self, SourcesError> {
        Self::with_keyring(home, &["deb", "deb-src"], suites, Path::new(KEYRING))
    }

    fn with_keyring(
        home: &Path,
        kinds: &[&str],
        suites: &[&'static str],
        keyring: &Path,
    ) -> Result<Self, SourcesError> {
        need("fetch from Debian's archive", TOOLS)?;
        if !keyring.is_file() {
            return Err(SourcesError::Keyring(keyring.into()));
        }
        for folder in ["parts", "state/lists/partial", "cache/archives/partial"] {
            let folder = home.join(folder);
            fs::create_dir_all(&folder).map_err(|e| SourcesError::io("create", &folder, e))?;
        }
        let sources =
            conf::sources(&Mirrors::of_system(Path::new(conf::SYSTEM)), kinds, suites, keyring);
        let conf = conf::own(home, &conf::network());
        let files = [("sources.list", sources), ("apt.conf", conf), ("status", String::new())];
        for (name, text) in files {
            let path = home.join(name);
            fs::write(&path, text).map_err(|e| SourcesError::io("write", &path, e))?;
        }
        Ok(Self { home: home.into(), suites: suites.into() })
    }

    /// Refreshes the lists. Without `--error-on=any`, apt-get succeeds even if it fetches no list.
    pub(super) fn update(&self, runner: &Runner) -> Result<(), SourcesError> {
        let mut command = self.command("apt-get");
        command.args(["update", "--error-on=any"]);
        runner.run("apt-get update", &mut command, &mut |_| ())
    }

    /// Refreshes the lists and returns the newest version of each package.
    pub(super) fn packages(&self, runner: &Runner) -> Result<Vec<Package>, SourcesError> {
        self.update(runner)?;
        let text =
            runner.output("apt-cache dumpavail", self.command("apt-cache").arg("dumpavail"))?;
        Ok(parse(&text))
    }

    /// Returns all versions of the package `name`. The caller refreshes the lists first.
    pub(super) fn versions(
        &self,
        name: &str,
        runner: &Runner,
    ) -> Result<Vec<Package>, SourcesError> {
        let mut command = self.command("apt-cache");
        command.args(["show", "--all-versions", name]);
        Ok(parse(&runner.output("apt-cache show", &mut command)?))
    }

    /// Returns all versions of the source package `name`. The caller refreshes the lists first.
    pub(super) fn source_versions(
        &self,
        name: &str,
        runner: &Runner,
    ) -> Result<Vec<Package>, SourcesError> {
        let mut command = self.command("apt-cache");
        command.args(["showsrc", "--only-source", name]);
        Ok(parse(&runner.output("apt-cache showsrc", &mut command)?))
    }

    /// Downloads the files of a source package into `folder`; apt checks their digests.
    pub(super) fn download_source(
        &self,
        package: &Package,
        folder: &Path,
        runner: &Runner,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), SourcesError> {
        let mut command = self.command("apt-get");
        command.current_dir(folder).args(["source", "--download-only"]);
        command.arg(format!("{}={}", package.name, package.version));
        download(&mut command, runner, progress)
    }

    /// Downloads the packages in these versions into `folder`; apt checks their digests.
    pub(super) fn download(
        &self,
        packages: &[Package],
        folder: &Path,
        runner: &Runner,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), SourcesError> {
        let named = packages.iter().map(|package| format!("{}={}", package.name, package.version));
        let mut command = self.command("apt-get");
        command.current_dir(folder).arg("download").args(named);
        download(&mut command, runner, progress)
    }

    /// Returns the error for a package that no suite has.
    pub(super) fn lacks(&self, what: &str, runner: &Runner) -> SourcesError {
        let suites = self.suites.join(", ");
        SourcesError::NoPackage { what: what.into(), suites, log: runner.log().into() }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.home.join("apt.conf")).env("LC_ALL", "C");
        command
    }
}

/// Runs an apt-get command that downloads, and reports its progress.
pub(super) fn download(
    command: &mut Command,
    runner: &Runner,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), SourcesError> {
    command.args(["-q", "-o", "APT::Status-Fd=1"]);
    runner.run("downloading with apt-get", command, &mut |line| {
        if let Some((percent, detail)) = download_status(line) {
            let fraction = Some((percent / 100.0).clamp(0.0, 1.0));
            progress(Progress { stage: "download".into(), fraction, detail: detail.into() });
        }
    })
}

/// Parses apt's status line `dlstatus:FILE:PERCENT:TEXT`.
fn download_status(line: &str) -> Option<(f64, &str)> {
    let mut fields = line.strip_prefix("dlstatus:")?.splitn(3, ':').skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_keyring_nothing_is_fetched() {
        let home = tempfile::tempdir().unwrap();
        let absent = home.path().join("absent.gpg");
        let result =
            PrivateApt::with_keyring(home.path(), &["deb"], &["trixie-backports"], &absent);
        let error = result.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("apt install debian-archive-keyring"), "{error}");
        assert!(!home.path().join("apt.conf").exists());
    }

    #[test]
    fn status_lines_of_apt_parse() {
        let line = "dlstatus:2:61.0122:Retrieving file 3 of 4";
        assert_eq!(download_status(line), Some((61.0122, "Retrieving file 3 of 4")));
        assert_eq!(download_status("Get:2 http://m/debian trixie"), None);
    }
}
