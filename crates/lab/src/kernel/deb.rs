//! Unpacks packages without installing them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::KernelError;
use super::command::Runner;

/// Unpacks every package in `folder` into `root`.
pub(super) fn unpack_all(folder: &Path, root: &Path, runner: &Runner) -> Result<(), KernelError> {
    fs::create_dir_all(root).map_err(|e| KernelError::io("create", root, e))?;
    for deb in with_extension(folder, "deb")? {
        let mut command = Command::new("dpkg-deb");
        command.arg("--extract").arg(&deb).arg(root);
        runner.run("unpacking a package", &mut command, &mut |_| ())?;
        fs::remove_file(&deb).map_err(|e| KernelError::io("remove", &deb, e))?;
    }
    Ok(())
}

fn with_extension(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, KernelError> {
    let files = fs::read_dir(folder).map_err(|e| KernelError::io("read", folder, e))?;
    let paths = files.flatten().map(|file| file.path());
    let mut found: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    found.sort();
    Ok(found)
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
/// Packages with everything in one put the image into `/boot`; the split ones
/// into the folder of the modules, where `/usr/lib` may stand for `/lib`.
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
mod tests {
    use super::*;

    const RELEASE: &str = "7.3.4+deb13-cloud-amd64";

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file.replace("REL", RELEASE));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        root
    }

    #[test]
    fn both_packagings_are_understood() {
        let one = ["boot/vmlinuz-REL", "boot/config-REL", "lib/modules/REL/kernel/a.ko.xz"];
        let root = tree(&one);
        let found = parts(root.path(), RELEASE).unwrap();
        assert_eq!(found.config, root.path().join(format!("boot/config-{RELEASE}")));
        let split =
            ["vmlinuz", "config", "kernel/a.ko.zst"].map(|f| format!("usr/lib/modules/REL/{f}"));
        let root = tree(&split.each_ref().map(String::as_str));
        let found = parts(root.path(), RELEASE).unwrap();
        assert_eq!(found.image, root.path().join("usr/lib/modules").join(RELEASE).join("vmlinuz"));
    }

    #[test]
    fn what_is_absent_is_named() {
        let root = tree(&["boot/vmlinuz-REL", "lib/modules/REL/kernel/a.ko.xz"]);
        assert_eq!(parts(root.path(), RELEASE), Err("the kernel's configuration"));
        assert_eq!(parts(root.path(), "7.3.5"), Err("the kernel's modules"));
    }
}
