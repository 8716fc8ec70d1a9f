//! What apt knows about packages, and which of them make a cloud kernel.

use super::version;

/// Suffix of the versioned image packages that are wanted.
const FLAVOUR: &str = "-cloud-amd64";
/// sched_ext came with this release.
const RELEASE_MIN: &str = "6.12";

/// A package in apt's index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::kernel) struct Package {
    pub(in crate::kernel) name: String,
    pub(in crate::kernel) version: String,
    /// Size of the archive in bytes.
    pub(in crate::kernel) size: u64,
    /// Names of the packages that it depends on, all alternatives.
    pub(in crate::kernel) depends: Vec<String>,
}

/// Reads `apt-cache dumpavail`.
pub(in crate::kernel) fn parse(text: &str) -> Vec<Package> {
    text.split("\n\n").filter_map(package).collect()
}

fn package(stanza: &str) -> Option<Package> {
    let field = |name: &str| {
        stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::trim)
    };
    let depends = field("Depends").unwrap_or_default();
    let names = depends.split([',', '|']).filter_map(|one| one.split_whitespace().next());
    Some(Package {
        name: field("Package")?.into(),
        version: field("Version")?.into(),
        size: field("Size").and_then(|size| size.parse().ok()).unwrap_or(0),
        depends: names.map(str::to_owned).collect(),
    })
}

/// The newest version of the package of that name.
pub(in crate::kernel) fn newest<'a>(packages: &'a [Package], name: &str) -> Option<&'a Package> {
    let named = packages.iter().filter(|package| package.name == name);
    named.max_by(|a, b| version::compare(&a.version, &b.version))
}

/// A cloud kernel and the packages that hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kernel) struct CloudKernel {
    /// `uname -r`, such as `7.3.4+deb13-cloud-amd64`.
    pub(in crate::kernel) release: String,
    /// The image package first, then those that it depends on.
    pub(in crate::kernel) packages: Vec<Package>,
}

/// All cloud kernels that may have sched_ext, the newest first.
///
/// The image package holds the kernel, its configuration and its modules; or, in the
/// split packaging, it depends on packages that do, told by the release in their names. A
/// kernel whose parts are not all there is left out.
pub(in crate::kernel) fn cloud_kernels(packages: &[Package]) -> Vec<CloudKernel> {
    let mut images: Vec<&Package> =
        packages.iter().filter(|p| image_release(p).is_some()).collect();
    images.sort_by(|a, b| version::compare(&b.version, &a.version));
    images.dedup_by(|a, b| a.name == b.name);
    images.into_iter().filter_map(|image| cloud_kernel(packages, image)).collect()
}

fn cloud_kernel(packages: &[Package], image: &Package) -> Option<CloudKernel> {
    let release = image_release(image)?;
    let mut parts = vec![image.clone()];
    let companions: Vec<_> =
        image.depends.iter().filter(|name| name.ends_with(&format!("-{release}"))).collect();
    if companions.iter().any(|name| name.starts_with("linux-modules-")) {
        for name in companions {
            let mut named = packages.iter().filter(|package| package.name == *name);
            parts.push(named.find(|package| package.version == image.version)?.clone());
        }
    }
    Some(CloudKernel { release: release.into(), packages: parts })
}

/// The release of a versioned, signed cloud image package.
fn image_release(package: &Package) -> Option<&str> {
    let release = package.name.strip_prefix("linux-image-")?;
    let number = release.split(['+', '-']).next()?;
    let versioned = release.ends_with(FLAVOUR) && number.starts_with(|c: char| c.is_ascii_digit());
    (versioned && version::compare(number, RELEASE_MIN).is_ge()).then_some(release)
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
