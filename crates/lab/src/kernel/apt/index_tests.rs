use super::*;

/// Shortened from `apt-cache dumpavail` for trixie-backports.
const INDEX: &str = include_str!("golden/dumpavail.txt");

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
fn debug_meta_unsigned_and_old_packages_are_no_choice() {
    let names = [
        "linux-image-cloud-amd64",
        "linux-image-7.3.4+deb13-cloud-amd64-dbg",
        "linux-image-7.3.4+deb13-cloud-amd64-unsigned",
        "linux-image-7.3.4+deb13-amd64",
        "linux-image-6.1.0-47-cloud-amd64",
    ];
    for name in names {
        let package =
            Package { name: name.into(), version: "7.3.4-1".into(), ..Package::default() };
        assert_eq!(image_release(&package), None, "{name}");
    }
}

#[test]
fn the_newest_source_package_is_found() {
    let packages = parse(INDEX);
    let found = newest(&packages, "linux-source-7.3").map(|p| p.version.as_str());
    assert_eq!(found, Some("7.3.4-1~bpo13+1"));
    assert_eq!(newest(&packages, "linux-source-9.9"), None);
}
