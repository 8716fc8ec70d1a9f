//! The file systems of a guest.

use std::fs;

use anyhow::Context;
use nix::mount::{MsFlags, mount};

/// Source, target and type of each mount; file systems that a kernel lacks are left out.
const MOUNTS: [(&str, &str, &str); 9] = [
    ("proc", "/proc", "proc"),
    ("sysfs", "/sys", "sysfs"),
    ("devtmpfs", "/dev", "devtmpfs"),
    ("devpts", "/dev/pts", "devpts"),
    ("shm", "/dev/shm", "tmpfs"),
    ("tmp", "/tmp", "tmpfs"),
    ("cgroup2", "/sys/fs/cgroup", "cgroup2"),
    ("debugfs", "/sys/kernel/debug", "debugfs"),
    ("tracefs", "/sys/kernel/tracing", "tracefs"),
];

/// Mounts everything; /proc and /sys must succeed.
pub fn mount_all() -> anyhow::Result<()> {
    for (source, target, kind) in MOUNTS {
        let _ = fs::create_dir_all(target);
        let result = mount(Some(source), target, Some(kind), MsFlags::empty(), None::<&str>);
        match result {
            Err(nix::Error::EBUSY) | Ok(()) => {}
            Err(error) if target == "/proc" || target == "/sys" => {
                return Err(error).with_context(|| format!("mount {target}"));
            }
            Err(error) => eprintln!("unspin init: mount {target}: {error}"),
        }
    }
    let _ = std::os::unix::fs::symlink("/proc/self/fd", "/dev/fd");
    bring_up_loopback();
    Ok(())
}

fn bring_up_loopback() {
    let done =
        std::process::Command::new("/bin/busybox").args(["ip", "link", "set", "lo", "up"]).status();
    if !done.is_ok_and(|status| status.success()) {
        eprintln!("unspin init: no loopback network");
    }
}
