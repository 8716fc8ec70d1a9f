use std::path::PathBuf;
use std::process::Command;

use super::super::inputs::Inputs;
use super::*;

/// Returns a patch that replaces the only line of `file`.
fn one_line_patch(file: &str, from: &str, to: &str) -> String {
    format!(
        "diff --git a/{file} b/{file}\n--- a/{file}\n+++ b/{file}\n@@ -1 +1 @@\n-{from}\n+{to}\n"
    )
}

fn pack(folder: &Path, tarball: &Path) {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--xz", "--file"]).arg(tarball).arg("--directory").arg(folder).arg(".");
    assert!(tar.status().unwrap().success());
}

/// Writes tarballs that are laid out like Debian's. Their `main.c` contains the line `old`.
fn fetched(home: &Path) -> Fetched {
    let (orig, debian, folder) = (home.join("orig"), home.join("deb"), home.join("files"));
    overlay::write(&orig.join("main.c"), "old\n").unwrap();
    overlay::write(&orig.join(DEVICES), "CONFIG_EVERYTHING=y\n").unwrap();
    for name in DEBIAN_PATCHES {
        overlay::write(&orig.join(name), "blob\n").unwrap();
        let text = one_line_patch(name, "blob", "none");
        overlay::write(&debian.join("debian/patches").join(name), &text).unwrap();
    }
    fs::create_dir(&folder).unwrap();
    // The original tarball also has one folder that contains all files.
    let upstream = home.join("upstream");
    fs::create_dir(&upstream).unwrap();
    fs::rename(&orig, upstream.join("qemu-1")).unwrap();
    let mut tar = Command::new("tar");
    tar.args(["--create", "--xz", "--file"]).arg(folder.join(ORIG));
    assert!(tar.arg("--directory").arg(&upstream).arg("qemu-1").status().unwrap().success());
    pack(&debian, &folder.join(DEBIAN));
    Fetched { folder, inputs: Inputs::pinned() }
}

fn recipe(patches: Vec<(&'static str, &'static str)>) -> Recipe {
    let headers = vec![("base.h".into(), "base\n"), ("host/sched.h".into(), "sched\n")];
    Recipe { patches, headers, devices: "CONFIG_Q35=y\n", options: Vec::new() }
}

fn made(home: &Path, recipe: &Recipe) -> Result<PathBuf, SourcesError> {
    let runner = Runner::new(home.join("log")).unwrap();
    let tree = home.join("tree");
    prepare(&fetched(home), recipe, &tree, &runner).map(|()| tree)
}

#[test]
fn devices_headers_and_debians_patches_are_laid_over_without_a_patch_of_ours() {
    let home = tempfile::tempdir().unwrap();
    let tree = made(home.path(), &recipe(Vec::new())).unwrap();
    let read = |path: &str| fs::read_to_string(tree.join(path)).unwrap();
    assert_eq!(read("main.c"), "old\n");
    assert_eq!(read(DEVICES), "CONFIG_Q35=y\n");
    assert_eq!(read("include/policy/base.h"), "base\n");
    assert_eq!(read("include/policy/host/sched.h"), "sched\n");
    assert_eq!(read(DEBIAN_PATCHES[0]), "none\n");
}

#[test]
fn patches_apply_in_order() {
    let home = tempfile::tempdir().unwrap();
    let patches = vec![
        ("0001-a.patch", one_line_patch("main.c", "old", "new").leak() as &str),
        ("0002-b.patch", one_line_patch("main.c", "new", "newer").leak() as &str),
    ];
    let tree = made(home.path(), &recipe(patches)).unwrap();
    assert_eq!(fs::read_to_string(tree.join("main.c")).unwrap(), "newer\n");
}

#[test]
fn a_patch_that_does_not_apply_is_named() {
    let home = tempfile::tempdir().unwrap();
    let text: &str = one_line_patch("main.c", "other", "new").leak();
    let error = made(home.path(), &recipe(vec![("0007-x.patch", text)])).unwrap_err().to_string();
    assert!(error.contains("applying 0007-x.patch failed"), "{error}");
}
