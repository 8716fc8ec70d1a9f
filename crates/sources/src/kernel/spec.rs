//! Kernel specs: the names that users give for kernels.

use std::path::{Path, PathBuf};

use super::KernelError;

/// The source package that the lab's patches are made for.
pub(super) const PINNED: &str = "linux-source-6.12";

/// The source of a lab kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The pinned source package, with the lab's patches.
    Lab,
    /// The pinned source package, with the lab's patches and those for confidential guests.
    LabCvm,
    /// The pinned source package, with the lab's patches and those for hosts that emulate SEV-ES.
    LabEs,
    /// Another source package, such as `linux-source-7.3`, unpatched.
    Package(String),
    /// A folder with a kernel source tree, unpatched. [`Source::parse`] makes its path absolute
    /// and free of links, so that one folder has one name.
    Dir(PathBuf),
}

impl Source {
    /// Returns the spec of this source.
    pub fn spec(&self) -> String {
        match self {
            Self::Lab => "lab".into(),
            Self::LabCvm => "lab-cvm".into(),
            Self::LabEs => "lab-es".into(),
            Self::Package(name) => format!("lab:{name}"),
            Self::Dir(path) => format!("lab:{}", path.display()),
        }
    }

    /// Parses the argument of `--source`: a package's name, a folder, `lab-cvm` or `lab-es`.
    ///
    /// # Errors
    /// If `text` is none of them.
    pub fn parse(text: &str) -> Result<Self, KernelError> {
        let path = Path::new(text);
        if text == "lab-cvm" {
            Ok(Self::LabCvm)
        } else if text == "lab-es" {
            Ok(Self::LabEs)
        } else if path.is_absolute() || text.starts_with('.') {
            let real = path.canonicalize().or_else(|_| std::path::absolute(path));
            Ok(Self::Dir(real.unwrap_or_else(|_| path.into())))
        } else if is_source_package(text) {
            Ok(Self::Package(text.into()))
        } else {
            Err(KernelError::Spec(text.into()))
        }
    }
}

/// One of Debian's cloud kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cloud {
    /// The newest one that has sched_ext.
    Newest,
    /// The kernel of Debian 12.
    Bookworm,
    /// The kernel of Debian 13.
    Trixie,
}

impl Cloud {
    /// All cloud kernels.
    pub const ALL: [Cloud; 3] = [Cloud::Newest, Cloud::Bookworm, Cloud::Trixie];

    /// Returns the spec of this kernel.
    pub fn spec(self) -> &'static str {
        match self {
            Self::Newest => "debian-cloud",
            Self::Bookworm => "debian-cloud:bookworm",
            Self::Trixie => "debian-cloud:trixie",
        }
    }

    /// Returns the cloud kernel that `spec` names.
    pub fn parse(spec: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cloud| cloud.spec() == spec)
    }
}

impl Source {
    /// Returns whether this is the pinned source package, which the lab patches.
    pub(super) fn is_pinned(&self) -> bool {
        matches!(self, Self::Lab | Self::LabCvm | Self::LabEs)
    }

    /// Returns the prefix of the ids of kernels that are built from this source.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::LabCvm => "lab-cvm",
            Self::LabEs => "lab-es",
            Self::Lab | Self::Package(_) | Self::Dir(_) => "lab",
        }
    }
}

/// A parsed kernel spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Spec {
    Build(Source),
    DebianCloud(Cloud),
    Image(PathBuf),
}

impl Spec {
    /// Parses a spec. A text with a slash, or the name of an existing file, is a path unless it is
    /// a known name.
    pub(super) fn parse(text: &str) -> Result<Self, KernelError> {
        if let Some(cloud) = Cloud::parse(text) {
            return Ok(Self::DebianCloud(cloud));
        }
        match text {
            "lab" => Ok(Self::Build(Source::Lab)),
            "lab-cvm" => Ok(Self::Build(Source::LabCvm)),
            "lab-es" => Ok(Self::Build(Source::LabEs)),
            _ => match text.strip_prefix("lab:") {
                Some(source) => Source::parse(source).map(Self::Build),
                None if text.contains('/') || Path::new(text).is_file() => {
                    Ok(Self::Image(text.into()))
                }
                None => Err(KernelError::Spec(text.into())),
            },
        }
    }
}

/// Returns whether `name` is a source package. The name becomes part of command lines, so only the
/// characters of package names are allowed.
fn is_source_package(name: &str) -> bool {
    name.strip_prefix("linux-source-").is_some_and(|version| {
        !version.is_empty()
            && version.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_parse() {
        let parse = |text| Spec::parse(text).ok();
        assert_eq!(parse("lab"), Some(Spec::Build(Source::Lab)));
        assert_eq!(parse("lab-cvm"), Some(Spec::Build(Source::LabCvm)));
        assert_eq!(parse("lab-es"), Some(Spec::Build(Source::LabEs)));
        let package = Source::Package("linux-source-7.3".into());
        assert_eq!(parse("lab:linux-source-7.3"), Some(Spec::Build(package)));
        assert_eq!(parse("lab:/src/linux"), Some(Spec::Build(Source::Dir("/src/linux".into()))));
        assert_eq!(parse("debian-cloud"), Some(Spec::DebianCloud(Cloud::Newest)));
        assert_eq!(parse("debian-cloud:bookworm"), Some(Spec::DebianCloud(Cloud::Bookworm)));
        assert_eq!(parse("debian-cloud:sarge"), None);
        assert_eq!(parse("/boot/vmlinuz"), Some(Spec::Image("/boot/vmlinuz".into())));
        assert_eq!(parse("labs"), None);
        assert_eq!(parse("lab:linux-image-7.3"), None);
        assert_eq!(parse("lab:linux-source-7.3;reboot"), None);
    }

    #[test]
    fn a_source_and_its_spec_agree() {
        for text in ["lab", "lab-cvm", "lab-es", "lab:linux-source-7.3", "lab:/src/linux"] {
            let Ok(Spec::Build(source)) = Spec::parse(text) else { panic!("{text}") };
            assert_eq!(source.spec(), text);
        }
    }

    #[test]
    fn one_folder_has_one_name() {
        let home = tempfile::tempdir().unwrap();
        let real = home.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&real, home.path().join("link")).unwrap();
        let found = Source::parse(&home.path().join("link/.").display().to_string()).unwrap();
        assert_eq!(found, Source::Dir(real));
        let Ok(Source::Dir(absent)) = Source::parse("./no-such-folder") else { panic!() };
        assert!(absent.is_absolute() && absent.ends_with("no-such-folder"));
    }

    #[test]
    fn the_error_lists_what_is_valid() {
        let error = Spec::parse("nonsense").err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("debian-cloud") && error.contains("nonsense"), "{error}");
    }
}
