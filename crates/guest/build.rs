//! Compiles the BPF programs of bpf/ with the libbpf headers that libbpf-sys brings.

use std::path::{Path, PathBuf};
use std::process::Command;

const CLANG_OLDEST: u32 = 16;

fn main() {
    for input in ["../../bpf", "../../policy"] {
        println!("cargo:rerun-if-changed={input}");
    }
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let headers = std::env::var("DEP_BPF_INCLUDE").expect("libbpf-sys says where its headers are");
    compile("sense", &headers, &[], &out.join("sense.bpf.o"));
    compile("sense", &headers, &["-DOWN_TIMERS_ONLY"], &out.join("sense-own-timers.bpf.o"));
    compile("watch", &headers, &[], &out.join("watch.bpf.o"));
    compile("account", &headers, &[], &out.join("account.bpf.o"));
    compile("run", &headers, &[], &out.join("run.bpf.o"));
}

fn compile(program: &str, headers: &str, defines: &[&str], object: &Path) {
    let mut command = Command::new(clang());
    command.args(["-target", "bpf", "-mcpu=v3", "-g", "-O2", "-Wall", "-Werror"]);
    command.args(["-I", headers, "-I", "../../bpf", "-I", "../../policy"]).args(defines);
    command.args(same_in_every_checkout(headers));
    command.arg("-c").arg(format!("../../bpf/{program}.bpf.c")).arg("-o").arg(object);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{command:?}: {status}"),
        Err(error) => panic!("{command:?}: {error}: clang {CLANG_OLDEST} or newer is needed"),
    }
}

/// Returns flags that keep folders out of BTF, which names source files. The object then has the
/// same bytes wherever it is built. So does a guest's initramfs, whose bytes are part of a run's
/// identity.
fn same_in_every_checkout(headers: &str) -> [String; 3] {
    let here = std::env::current_dir().expect("cargo runs build scripts in the crate's folder");
    [
        format!("-ffile-prefix-map={}=crates/guest", here.display()),
        format!("-ffile-prefix-map={headers}=libbpf"),
        "-fdebug-compilation-dir=.".into(),
    ]
}

/// Returns `$CLANG`, else the oldest versioned clang that is new enough, else the default clang.
fn clang() -> String {
    let set = std::env::var("CLANG").ok().filter(|clang| !clang.is_empty());
    let versioned = (CLANG_OLDEST..40).map(|version| format!("/usr/bin/clang-{version}"));
    set.or_else(|| versioned.into_iter().find(|path| Path::new(path).exists()))
        .unwrap_or_else(|| "clang".into())
}
