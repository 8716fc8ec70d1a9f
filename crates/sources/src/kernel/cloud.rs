//! Finds the Debian packages of a cloud kernel, and the kernel's parts in them.

use std::path::{Path, PathBuf};

use crate::apt::{Package, newest, version};

/// Suffix of the versioned image packages of cloud kernels.
const FLAVOUR: &str = "-cloud-amd64";

/// A cloud kernel and its packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CloudKernel {
    /// `uname -r`, such as `7.3.4+deb13-cloud-amd64`.
    pub(super) release: String,
    /// The image package, followed by the packages that it depends on.
    pub(super) packages: Vec<Package>,
}

/// Returns all cloud kernels, the newest first.
///
/// The image package contains the kernel, its configuration and its modules. In the split
/// packaging, it depends on packages with these parts, whose names contain the release. The result
/// omits a kernel if one of its packages is missing.
pub(super) fn cloud_kernels(packages: &[Package]) -> Vec<CloudKernel> {
    let mut images: Vec<&Package> =
        packages.iter().filter(|p| image_release(p).is_some()).collect();
    images.sort_by(|a, b| version::compare(&b.version, &a.version));
    images.dedup_by(|a, b| a.name == b.name);
    images.into_iter().filter_map(|image| cloud_kernel(packages, image)).collect()
}

/// Returns those of `kernels` that Debian's meta package installs by default.
pub(super) fn default_of(kernels: Vec<CloudKernel>, packages: &[Package]) -> Vec<CloudKernel> {
    let meta = newest(packages, &format!("linux-image{FLAVOUR}"));
    let depends = meta.map(|meta| meta.depends.as_slice()).unwrap_or_default();
    kernels.into_iter().filter(|kernel| depends.contains(&kernel.packages[0].name)).collect()
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

/// Returns the release of a versioned, signed cloud image package.
fn image_release(package: &Package) -> Option<&str> {
    let release = package.name.strip_prefix("linux-image-")?;
    let versioned = release.ends_with(FLAVOUR) && release.starts_with(|c: char| c.is_ascii_digit());
    versioned.then_some(release)
}

/// The parts of a kernel in an unpacked package tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) image: PathBuf,
    pub(super) config: PathBuf,
    pub(super) modules: PathBuf,
}

/// Finds the parts of the kernel `release` below `root`.
///
/// An undivided package has the image in `/boot`. A split package has it in the folder of the
/// modules, which is below `/lib` or `/usr/lib`.
pub(super) fn parts(root: &Path, release: &str) -> Result<Parts, &'static str> {
    let modules = ["lib/modules", "usr/lib/modules"].map(|home| root.join(home).join(release));
    let modules = modules.into_iter().find(|folder| folder.join("kernel").is_dir());
    let modules = modules.ok_or("the kernel's modules")?;
    let find = |name: &str| {
        let places = [root.join("boot").join(format!("{name}-{release}")), modules.join(name)];
        places.into_iter().find(|file| file.is_file())
    };
    let image = find("vmlinuz").ok_or("the kernel image")?;
    Ok(Parts { image, config: find("config").ok_or("the kernel's configuration")?, modules })
}

#[cfg(test)]
#[path = "cloud_tests.rs"]
mod tests;
