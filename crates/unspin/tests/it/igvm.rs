//! `unspin igvm`: builds, shows, measures, compares and checks files on the command line.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::kernel;

fn unspin(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unspin"));
    command.current_dir(folder).args(args).output().expect("start unspin")
}

/// Returns the output of a verb, which must exit with `status`.
fn prints(folder: &Path, args: &[&str], status: i32) -> String {
    let output = unspin(folder, args);
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&all).into_owned();
    assert_eq!(output.status.code(), Some(status), "{args:?}: {text}");
    text
}

fn json(folder: &Path, args: &[&str], status: i32) -> Value {
    let text = prints(folder, &[args, &["--json"]].concat(), status);
    let value: Value =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"));
    assert_eq!(value["format"], 1);
    assert!(value["program"].as_str().is_some_and(|program| program.starts_with("unspin ")));
    value
}

/// Returns a folder with a kernel, an initramfs, and launch files of both for SNP and SEV-ES.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("vmlinuz"), kernel::synthetic()).expect("write");
    fs::write(folder.path().join("initrd"), [7; 9000]).expect("write");
    for (name, platform) in [("snp.igvm", "snp"), ("es.igvm", "sev-es")] {
        prints(folder.path(), &build(platform, name), 0);
    }
    folder
}

fn build<'a>(platform: &'a str, out: &'a str) -> [&'a str; 12] {
    [
        "igvm",
        "build",
        "--kernel",
        "vmlinuz",
        "--initramfs",
        "initrd",
        "--append",
        "quiet",
        "--platform",
        platform,
        "-o",
        out,
    ]
}

#[test]
fn a_file_is_built_shown_measured_and_checked() {
    let folder = folder();
    let folder = folder.path();
    let built = json(folder, &build("snp", "again.igvm"), 0);
    let bytes = fs::read(folder.join("snp.igvm")).expect("a file");
    assert_eq!(
        (bytes.clone(), built["bytes"].as_u64()),
        (fs::read(folder.join("again.igvm")).unwrap(), Some(bytes.len() as u64))
    );
    assert_eq!(unspin(folder, &build("snp", "-")).stdout, bytes);

    let shown = prints(folder, &["igvm", "show", "snp.igvm"], 0);
    for part in
        ["guest policy 0x30000", "0x1000000", "vCPU 0 (snp) starts in 64-bit mode", "rip 0x1000200"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let shown = json(folder, &["igvm", "show", "snp.igvm"], 0);
    assert_eq!(shown["vcpus"][0]["registers"]["rsi"], "0x7000");
    assert_eq!(shown["digests"], built["digests"]);

    let kvm = json(folder, &["igvm", "measure", "snp.igvm", "--loader", "kvm"], 0);
    assert_eq!(kvm["digests"].as_array().map(Vec::len), Some(1));
    assert_eq!(kvm["digests"][0]["digest"], built["digests"][0]["digest"]);
    assert_eq!(kvm["digests"][0]["digest"].as_str().map(str::len), Some(96));
    let es = json(folder, &["igvm", "measure", "es.igvm"], 0);
    assert_eq!(
        (&es["digests"][0]["loader"], es["digests"][0]["digest"].as_str().map(str::len)),
        (&Value::Null, Some(64))
    );

    let checked = json(folder, &["igvm", "check", "snp.igvm"], 0);
    assert_eq!((&checked["errors"], &checked["notes"]), (&0.into(), &0.into()));
}

#[test]
fn differences_and_errors_have_status_1() {
    let folder = folder();
    let folder = folder.path();
    assert_eq!(
        prints(folder, &["igvm", "diff", "es.igvm", "es.igvm"], 0),
        "The files make the same guest.\n"
    );
    let mut other = build("sev-es", "other.igvm");
    other[7] = "debug";
    prints(folder, &other, 0);
    let found = json(folder, &["igvm", "diff", "es.igvm", "other.igvm"], 1);
    assert_eq!(found["ranges"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        (&found["ranges"][0]["how"], &found["ranges"][0]["first_byte"]),
        (&"contents".into(), &"0x20000".into())
    );
    let text = prints(folder, &["igvm", "diff", "es.igvm", "other.igvm"], 1);
    assert!(text.contains("The first difference is directive"), "{text}");

    let mut bytes = fs::read(folder.join("es.igvm")).expect("a file");
    bytes.truncate(5000);
    fs::write(folder.join("cut.igvm"), bytes).expect("write");
    let report = json(folder, &["igvm", "check", "cut.igvm"], 1);
    assert!(
        report["findings"][0]["what"]
            .as_str()
            .is_some_and(|what| what.contains("5000 bytes, but its header says"))
    );
    for verb in ["show", "measure"] {
        let text = prints(folder, &["igvm", verb, "cut.igvm"], 1);
        assert!(text.starts_with("unspin: cut.igvm: has 5000 bytes"), "{text}");
    }
    assert!(
        prints(folder, &["igvm", "measure", "es.igvm", "--platform", "snp"], 1)
            .contains("not for snp, but for sev-es")
    );
}

#[test]
fn what_cannot_be_meant_has_status_2() {
    let folder = folder();
    let folder = folder.path();
    assert!(prints(folder, &build("tdx", "x"), 2).contains("needs firmware"));
    let native = [&build("native", "x")[..], &["--cbit", "51"]].concat();
    assert!(prints(folder, &native, 2).contains("leave --cbit out"));
    let both = [&build("snp", "-")[..], &["--json"]].concat();
    assert!(prints(folder, &both, 2).contains("leave one out"));
    assert!(
        prints(folder, &["igvm", "measure", "es.igvm", "--platform", "riscv"], 2)
            .contains("invalid value")
    );
    assert!(!folder.join("x").exists());
}

/// Returns Debian's kernel, if `unspin lab kernel fetch debian-cloud` has fetched it.
fn debian() -> Option<PathBuf> {
    let kernel = unspin_sources::kernel::resolve("debian-cloud").expect("a cache that can be read");
    kernel.map(|kernel| kernel.image)
}

/// Boots from the file's memory and registers alone. The boot is emulated, so it takes seconds.
#[test]
fn a_native_file_boots_in_qemu() {
    let Some(kernel) = debian() else {
        return eprintln!("skipped: no kernel of Debian's: unspin lab kernel fetch debian-cloud");
    };
    let folder = folder();
    let folder = folder.path();
    let kernel = kernel.display().to_string();
    let args = ["igvm", "build", "--kernel", &kernel, "--platform", "native", "--vcpus", "2"];
    let more = ["--append", "console=ttyS0 panic=-1", "-o", "native.igvm"];
    prints(folder, &[&args[..], &more].concat(), 0);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/igvm-boot.py");
    let boot =
        Command::new("python3").arg(script).args(["native.igvm", "2"]).current_dir(folder).output();
    let Ok(output) = boot else { return eprintln!("skipped: needs python3: apt install python3") };
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) {
        return eprintln!("{said}");
    }
    let log = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{log}");
    assert!(log.contains("RSDP 0x00000000000E0000"), "{log}");
}

#[test]
fn debians_kernel_has_no_findings() {
    let Some(kernel) = debian() else {
        return eprintln!("skipped: no kernel of Debian's: unspin lab kernel fetch debian-cloud");
    };
    let folder = folder();
    let folder = folder.path();
    let kernel = kernel.display().to_string();
    for platform in ["sev-es", "snp", "sev", "native"] {
        let mut args = build(platform, "debian.igvm");
        args[3] = &kernel;
        prints(folder, &args, 0);
        let checked = json(folder, &["igvm", "check", "debian.igvm"], 0);
        assert_eq!((&checked["errors"], &checked["notes"]), (&0.into(), &0.into()), "{checked}");
    }
}
