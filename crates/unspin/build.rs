//! Embeds the commit that unspin is built from. `git` in the working directory of a running
//! program would name another repository's commit, or none.

use std::path::Path;
use std::process::Command;

/// Characters that a commit is padded to, with dots, as Cargo trims spaces. With one width, the
/// programs of all commits have the same layout.
const COMMIT_WIDTH: usize = 24;

fn main() {
    // Not `env!`: a target folder that was copied holds a build script of the other checkout.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("Cargo sets it");
    let root = Path::new(&package).join("../..");
    // Cargo looks into folders for changed files. git's own files change with each commit.
    for folder in
        ["bpf", "claims", "crates", "experiments", "kernel", "policy", "qemu", "workloads"]
    {
        watch(&root.join(folder));
    }
    watch(&root.join("Cargo.lock"));
    // The index says no more, and `git describe` itself writes it.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(file) = git(&root, &["rev-parse", "--git-path", name]) {
            watch(&root.join(file));
        }
    }
    let describe = ["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"];
    let commit = git(&root, &describe).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=UNSPIN_COMMIT={commit:.<COMMIT_WIDTH$}");
    // The linker's build ID is a hash of the program, commit included.
    println!("cargo:rustc-link-arg-bins=-Wl,--build-id=none");
}

/// Builds again when this changes. A path that is missing would count as changed each time.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo:rerun-if-changed={}", path.display());
    }
}

/// What git prints; `None` outside of a checkout of unspin itself.
fn git(root: &Path, args: &[&str]) -> Option<String> {
    if !root.join(".git").exists() {
        return None;
    }
    // Whoever builds may be another user than the one who cloned.
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*"]).args(args);
    let output = git.current_dir(root).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
