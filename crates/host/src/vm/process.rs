//! QEMU as a process of ours.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use unspin_model::FailureKind;

use unspin_wire::Failure;

/// Starts QEMU in `folder`, its own messages in `qemu.log` there. It is held to `cpus`,
/// unless there are none, and dies with the thread that started it.
pub fn spawn(
    program: &OsStr,
    args: &[String],
    folder: &Path,
    cpus: &[u32],
) -> Result<Child, Failure> {
    let fail = |detail: String| Failure::new(FailureKind::QemuDied, detail);
    let stderr = fs::File::create(folder.join("qemu.log")).map_err(|e| fail(e.to_string()))?;
    let set = (!cpus.is_empty()).then(|| cpu_set(cpus));
    let mut command = Command::new(program);
    command.args(args).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    // SAFETY: between fork and exec only the system calls prctl,
    // sched_setaffinity and setpgid are made; nothing allocates.
    unsafe {
        command.pre_exec(move || {
            // QEMU must not outlive us, whatever ends us.
            nix::libc::prctl(nix::libc::PR_SET_PDEATHSIG, nix::libc::SIGKILL);
            // Ctrl-C is for us, so QEMU leaves our process group; not our session,
            // because each session can be a scheduling group of its own (autogroup).
            nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
            if let Some(set) = &set {
                sched_setaffinity(Pid::from_raw(0), set)?;
            }
            Ok(())
        });
    }
    command.spawn().map_err(|e| {
        fail(format!("start {}: {e} (apt install qemu-system-x86)", Path::new(program).display()))
    })
}

/// A set of these CPUs.
pub fn cpu_set(cpus: &[u32]) -> CpuSet {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        // Out of range only beyond 1,024 CPUs, which the topology check refuses.
        let _ = set.set(cpu as usize);
    }
    set
}

/// Kills QEMU and waits for its end.
pub fn end(qemu: &mut Child) {
    let _ = qemu.kill();
    let _ = qemu.wait();
}
