use std::fs;

use super::*;
use crate::apt::parse;

/// Shortened from `apt-cache dumpavail` for trixie-backports.
const INDEX: &str = include_str!("../apt/golden/dumpavail.txt");

#[test]
fn the_newest_kernel_comes_first() {
    let releases: Vec<_> = cloud_kernels(&parse(INDEX)).into_iter().map(|k| k.release).collect();
    let expected =
        ["7.3.4+deb13-cloud-amd64", "7.2.12+deb13-cloud-amd64", "6.18.15+deb13-cloud-amd64"];
    assert_eq!(releases, expected);
}

#[test]
fn split_packaging_takes_the_parts_of_that_release() {
    let kernel = cloud_kernels(&parse(INDEX)).remove(0);
    let names: Vec<_> = kernel.packages.iter().map(|p| p.name.as_str()).collect();
    let expected = [
        "linux-image-7.3.4+deb13-cloud-amd64",
        "linux-base-7.3.4+deb13-cloud-amd64",
        "linux-binary-7.3.4+deb13-cloud-amd64",
        "linux-modules-7.3.4+deb13-cloud-amd64",
    ];
    assert_eq!(names, expected);
    assert!(kernel.packages.iter().all(|p| p.version == "7.3.4-1~bpo13+1"));
}

#[test]
fn one_package_packaging_takes_the_image() {
    let kernel = cloud_kernels(&parse(INDEX)).remove(2);
    assert_eq!(kernel.packages[0].name, "linux-image-6.18.15+deb13-cloud-amd64");
    assert_eq!(kernel.packages[0].size, 49_146_196);
    assert_eq!(kernel.packages.len(), 1);
}

#[test]
fn a_kernel_with_an_absent_part_is_no_choice() {
    let without = |p: &Package| p.name != "linux-modules-7.3.4+deb13-cloud-amd64";
    let packages: Vec<_> = parse(INDEX).into_iter().filter(without).collect();
    assert_eq!(cloud_kernels(&packages)[0].release, "7.2.12+deb13-cloud-amd64");
}

#[test]
fn debug_meta_and_unsigned_packages_are_no_choice() {
    let names = [
        "linux-image-cloud-amd64",
        "linux-image-7.3.4+deb13-cloud-amd64-dbg",
        "linux-image-7.3.4+deb13-cloud-amd64-unsigned",
        "linux-image-7.3.4+deb13-amd64",
    ];
    for name in names {
        let package =
            Package { name: name.into(), version: "7.3.4-1".into(), ..Package::default() };
        assert_eq!(image_release(&package), None, "{name}");
    }
}

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
