//! Embeds the commit that unspin is built from. A running program cannot ask `git`, because its
//! working directory may belong to another repository, or to none.

use std::path::Path;
use std::process::Command;

/// The commit's width in characters. Dots pad it, because Cargo trims spaces. With one width, the
/// programs of all commits have the same layout.
const COMMIT_WIDTH: usize = 24;

fn main() {
    // Not `env!`: a copied target folder may contain the build script of another checkout.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("Cargo sets it");
    let root = Path::new(&package).join("../..");
    // Cargo checks folders for changed files. git's own files change with each commit.
    for folder in
        ["bpf", "claims", "crates", "experiments", "kernel", "policy", "qemu", "workloads"]
    {
        watch(&root.join(folder));
    }
    watch(&root.join("Cargo.lock"));
    // Don't watch the index: it adds no information, and `git describe` itself writes it.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(file) = git(&root, &["rev-parse", "--git-path", name]) {
            watch(&root.join(file));
        }
    }
    let describe = ["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"];
    let commit = git(&root, &describe).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=UNSPIN_COMMIT={commit:.<COMMIT_WIDTH$}");
    // The linker's build ID would be a hash of the whole program, including the commit.
    println!("cargo:rustc-link-arg-bins=-Wl,--build-id=none");
}

/// Makes Cargo rebuild when `path` changes. Cargo would count a missing path as changed each time.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo:rerun-if-changed={}", path.display());
    }
}

/// Returns git's output, or `None` outside of a checkout of unspin itself.
fn git(root: &Path, args: &[&str]) -> Option<String> {
    if !root.join(".git").exists() {
        return None;
    }
    // The user who builds may differ from the user who cloned.
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*"]).args(args);
    let output = git.current_dir(root).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
