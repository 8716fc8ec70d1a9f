//! The machine that the lab runs on: its description, its usable CPUs and its working accelerator.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sched::sched_getaffinity;
use nix::unistd::Pid;
use unspin_model::summary::Machine;
use unspin_model::{Accel, FailureKind};
use unspin_sources::cache_dir;
use unspin_sources::kernel::Kernel;
use unspin_wire::{Failure, VmSpec};

use unspin_host::interrupt;
use unspin_host::vm::{Vm, cpu_model, qemu_program};

pub mod room;

/// Seconds within which the guest of a KVM probe must say hello.
const PROBE_LIMIT_S: f64 = 30.0;

/// Describes this machine. The caller passes the commit that unspin was built from.
pub fn describe(commit: &str) -> Machine {
    Machine {
        cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
        cpus: allowed_cpus().len() as u32,
        memory_mib: memory_mib(),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        distribution: field(&read("/etc/os-release"), "PRETTY_NAME").unwrap_or_default(),
        qemu: qemu_version().unwrap_or_default(),
        unspin: env!("CARGO_PKG_VERSION").to_owned(),
        commit: commit.to_owned(),
    }
}

/// Returns the total memory of this machine in MiB, or 0 if it is unknown.
pub fn memory_mib() -> u64 {
    let total = field(&read("/proc/meminfo"), "MemTotal");
    let kib = total.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

/// Returns the value in the first line that begins with `key`.
fn field(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once([':', '='])?.1.trim().trim_matches('"').to_owned())
}

/// Returns the host CPUs that this process may use, in ascending order.
pub fn allowed_cpus() -> Vec<u32> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return Vec::new() };
    let count = nix::sched::CpuSet::count();
    (0..count).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).map(|cpu| cpu as u32).collect()
}

/// Returns QEMU's version, such as `7.2.19`, or `None` if QEMU is not installed.
pub fn qemu_version() -> Option<String> {
    let output = Command::new(qemu_program()).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split("version ").nth(1)?.split_whitespace().next().map(str::to_owned)
}

/// Chooses the accelerator: the forced one, else kvm if a guest really boots with it, else tcg. The
/// answer is cached per host kernel, QEMU version and guest kernel. An answer that another attempt
/// may change is not cached; `note` then gets a line that says why.
pub fn accelerator(
    forced: Option<Accel>,
    kernel: &Kernel,
    initramfs: &Path,
    folder: &Path,
    note: &mut dyn FnMut(&str),
) -> Result<Accel, Failure> {
    if let Some(accel) = forced {
        return Ok(accel);
    }
    if fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
        return Ok(Accel::Tcg);
    }
    let host = describe("");
    let key = format!("{} / qemu {} / {}", host.kernel, host.qemu, kernel.id);
    let mut known = Answers::load();
    if let Some(accel) = known.by_host.get(&key) {
        return Ok(*accel);
    }
    let boots = Vm::start(&probe_spec(kernel, initramfs), &folder.join("kvm-probe"), |_| Ok(()));
    let (accel, doubt) = answer(boots.map(drop), interrupt::requested())?;
    match doubt {
        Some(doubt) => note(&doubt),
        None => {
            known.by_host.insert(key, accel);
            known.save();
        }
    }
    Ok(accel)
}

/// Returns the accelerator that a probe's result means, and a message if the result must not be
/// cached. A guest panic proves that KVM does not work here. A QEMU that was slow or died may have
/// met a busy machine, and an interrupted probe proves nothing.
fn answer(
    boots: Result<(), Failure>,
    interrupted: bool,
) -> Result<(Accel, Option<String>), Failure> {
    match boots {
        Ok(()) => Ok((Accel::Kvm, None)),
        Err(failure) if interrupted || failure.kind == FailureKind::Interrupted => {
            Err(Failure { kind: FailureKind::Interrupted, ..failure })
        }
        Err(failure) if failure.kind == FailureKind::GuestPanic => Ok((Accel::Tcg, None)),
        Err(failure) => {
            let reason = failure.detail.lines().next().unwrap_or_default();
            let doubt = format!("KVM does not work here: {reason}; using tcg");
            Ok((Accel::Tcg, Some(doubt)))
        }
    }
}

fn probe_spec(kernel: &Kernel, initramfs: &Path) -> VmSpec {
    VmSpec {
        name: "kvm-probe".into(),
        vcpus: 1,
        memory_mib: 768,
        kernel: kernel.image.display().to_string(),
        initramfs: initramfs.display().to_string(),
        boot_params: String::new(),
        accel: Accel::Kvm,
        cpu: cpu_model(Accel::Kvm, false),
        pcpus: allowed_cpus(),
        pinned: false,
        pause_exits: None,
        boot_limit_s: PROBE_LIMIT_S,
    }
}

/// The accelerator that worked, by host kernel, QEMU version and guest kernel.
struct Answers {
    file: PathBuf,
    by_host: BTreeMap<String, Accel>,
}

impl Answers {
    fn load() -> Answers {
        let file = cache_dir().join("accelerators.json");
        let by_host = serde_json::from_str(&read(&file)).unwrap_or_default();
        Answers { file, by_host }
    }

    /// Writes the cache file. Errors are ignored because the cache only saves a few seconds.
    fn save(&self) {
        if let Ok(text) = serde_json::to_string_pretty(&self.by_host) {
            let _ = fs::write(&self.file, text);
        }
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_boot_and_a_panic_are_kept_as_answers() {
        assert_eq!(answer(Ok(()), false), Ok((Accel::Kvm, None)));
        let of = |kind, interrupted| answer(Err(Failure::new(kind, "why\nlog")), interrupted);
        assert_eq!(of(FailureKind::GuestPanic, false), Ok((Accel::Tcg, None)));
        let doubt = "KVM does not work here: why; using tcg";
        for kind in [FailureKind::BootTimeout, FailureKind::QemuDied, FailureKind::Unavailable] {
            assert_eq!(of(kind, false), Ok((Accel::Tcg, Some(doubt.to_owned()))), "{kind:?}");
        }
        let ended = [(FailureKind::Interrupted, false), (FailureKind::QemuDied, true)];
        for (kind, interrupted) in ended {
            assert_eq!(of(kind, interrupted).unwrap_err().kind, FailureKind::Interrupted);
        }
    }
}
