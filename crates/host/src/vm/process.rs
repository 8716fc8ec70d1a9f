//! QEMU as a child process.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use unspin_model::FailureKind;

use unspin_wire::Failure;

/// Starts QEMU in `folder`, with its own messages in `qemu.log` there. QEMU runs only on `cpus`,
/// unless the list is empty, and dies with the thread that started it.
pub fn spawn(
    program: &OsStr,
    args: &[String],
    folder: &Path,
    cpus: &[u32],
) -> Result<Child, Failure> {
    // QEMU has not run yet. A resource that is missing now is missing at the next attempt, too.
    let fail = |detail: String| Failure::new(FailureKind::Unavailable, detail);
    let stderr = fs::File::create(folder.join("qemu.log")).map_err(|e| fail(e.to_string()))?;
    let set = (!cpus.is_empty()).then(|| cpu_set(cpus));
    let mut command = Command::new(program);
    command.args(args).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    // SAFETY: between fork and exec, only the system calls prctl, sched_setaffinity and setpgid are
    // made; nothing allocates.
    unsafe {
        command.pre_exec(move || {
            // QEMU must not outlive this process, whatever ends it.
            nix::libc::prctl(nix::libc::PR_SET_PDEATHSIG, nix::libc::SIGKILL);
            // Ctrl-C is for this process, so QEMU leaves its process group. QEMU stays in the
            // session, because each session can be a scheduling group of its own (autogroup).
            nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
            if let Some(set) = &set {
                sched_setaffinity(Pid::from_raw(0), set)?;
            }
            Ok(())
        });
    }
    command.spawn().map_err(|error| {
        let advice = match error.raw_os_error() {
            Some(nix::libc::EINVAL) => format!(" (are pCPUs {cpus:?} online?)"),
            Some(nix::libc::ENOENT) => " (apt install qemu-system-x86)".to_owned(),
            _ => String::new(),
        };
        fail(format!("start {}: {error}{advice}", Path::new(program).display()))
    })
}

/// Returns the set of these CPUs.
pub fn cpu_set(cpus: &[u32]) -> CpuSet {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        // A CPU is out of range only beyond 1,024 CPUs, which the topology check refuses.
        let _ = set.set(cpu as usize);
    }
    set
}

/// Kills QEMU and waits for its end.
pub fn end(qemu: &mut Child) {
    let _ = qemu.kill();
    let _ = qemu.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_qemu_and_absent_pcpus_are_unavailable() {
        let folder = tempfile::tempdir().unwrap();
        let start = |program: &str, cpus: &[u32]| {
            spawn(OsStr::new(program), &[], folder.path(), cpus).map(drop).unwrap_err()
        };
        let missing = start("/no/such/qemu", &[]);
        assert_eq!(missing.kind, FailureKind::Unavailable);
        assert!(missing.detail.contains("apt install"), "{missing}");
        let absent = start("/bin/true", &[1023]);
        assert_eq!(absent.kind, FailureKind::Unavailable);
        assert!(absent.detail.contains("[1023]"), "{absent}");
    }
}
