//! Runs shellcheck on the shell scripts of this machine and of guests, and the tests of Python
//! scripts.

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn shell_scripts_pass_shellcheck() {
    if Command::new("shellcheck").arg("--version").output().is_err() {
        return eprintln!("skipped: needs shellcheck: apt install shellcheck");
    }
    let scripts = scripts();
    assert!(scripts.len() > 20, "the scripts: {scripts:?}");
    let mut shellcheck = Command::new("shellcheck");
    shellcheck
        .args(["--external-sources", "--source-path=SCRIPTDIR", "--severity=warning"])
        .args(&scripts);
    let output = shellcheck.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn python_scripts_pass_their_tests() {
    let mut python = Command::new("python3");
    // `-B`, because this user may not be able to write to the checkout.
    python.args(["-B", "-m", "unittest", "discover", "-s", "scripts"]).current_dir(root());
    let Ok(output) = python.output() else {
        return eprintln!("skipped: needs python3");
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !stderr.contains("Ran 0 tests"), "{stderr}");
}

#[test]
fn uninstall_removes_what_install_installed() {
    let Some(program) = std::env::var_os("UNSPIN_UNDER_TEST") else {
        return eprintln!("skipped: needs a release build: run `make test`");
    };
    let release = Path::new(&program).parent().unwrap();
    let target = tempfile::tempdir().unwrap();
    let own = target.path().join("usr/local/bin/own");
    std::fs::create_dir_all(own.parent().unwrap()).unwrap();
    std::fs::write(&own, "").unwrap();
    let run = |script: &str, release: Option<&Path>| {
        let mut command = Command::new(root().join("scripts").join(script));
        command.args(release).arg("/usr/local").arg(target.path()).output().unwrap()
    };
    let files = || {
        let find = Command::new("find").arg(target.path()).args(["-type", "f"]).output().unwrap();
        String::from_utf8(find.stdout).unwrap()
    };
    let installed = run("install.sh", Some(release));
    assert!(installed.status.success(), "{installed:?}");
    assert!(files().lines().count() > 20, "{}", files());
    assert!(run("uninstall.sh", None).status.success());
    assert_eq!(files(), format!("{}\n", own.display()));
    let again = run("uninstall.sh", None);
    let stderr = String::from_utf8_lossy(&again.stderr);
    assert!(!again.status.success() && stderr.contains("not installed below"), "{stderr}");
}

#[test]
fn scripts_with_an_interpreter_are_executable() {
    use std::os::unix::fs::PermissionsExt;
    let entries = [".ci", "scripts", "kernel", "qemu"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(root().join(folder)).expect("a folder of scripts"))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file() && std::fs::read(path).unwrap().starts_with(b"#!"));
    let (ready, not): (Vec<PathBuf>, Vec<PathBuf>) =
        entries.partition(|path| path.metadata().unwrap().permissions().mode() & 0o111 == 0o111);
    assert!(ready.len() > 20 && not.is_empty(), "chmod +x these: {not:?}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the shell scripts in the repository's folders of scripts, relative to the root: files
/// named `*.sh`, and files whose first line names a shell.
fn scripts() -> Vec<PathBuf> {
    let folders =
        [".ci", "scripts", "tests/lab/guest", "crates/lab/src/experiment", "crates/lab/src/fuzz"];
    let entries = folders.iter().flat_map(|folder| {
        let list = std::fs::read_dir(root().join(folder)).expect("a folder of scripts");
        list.map(move |entry| Path::new(folder).join(entry.unwrap().file_name()))
    });
    entries.filter(|path| is_script(path)).collect()
}

fn is_script(path: &Path) -> bool {
    let text = std::fs::read(root().join(path)).unwrap_or_default();
    path.extension().is_some_and(|extension| extension == "sh")
        || text.starts_with(b"#!/bin/sh")
        || text.starts_with(b"#!/bin/bash")
}
