//! Reading a machine's facts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use raw_cpuid::CpuIdResult;
use raw_cpuid::native_cpuid::cpuid_count;

use super::{Facts, Leaf, TRACEPOINTS, config};
use crate::confine::{self, CpusetError};
use crate::steal;

/// What says which distribution this is.
const OS_RELEASE: &[&str] = &["ID", "ID_LIKE", "VERSION_ID", "VERSION_CODENAME", "PRETTY_NAME"];
/// What `unspin lab` needs, or is faster with.
const LAB: [&str; 3] = ["qemu-system-x86_64", "busybox", "/dev/kvm"];
/// AMD64 Architecture Programmer's Manual, volume 2, 15.34.10.
const MSR_SEV_STATUS: u32 = 0xc001_0131;
/// A kernel's log is at most some MiB long.
const LOG_RECORDS_MAX: usize = 200_000;
const O_NONBLOCK: i32 = 0o4000;

pub(super) fn probe() -> Facts {
    let lacks = confine::lacks();
    Facts {
        source: None,
        sev_status: msr(MSR_SEV_STATUS),
        kernel_says: log_line("Memory Encryption Features active"),
        spinlocks_say: log_line("PV spinlocks "),
        clocksource: some_text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        steal_ticks: steal::of_all(&text("/proc/stat")),
        cpu_ticks: steal::cpu_ticks(&text("/proc/stat")),
        os_release: os_release(&os_release_file()),
        lab: Some(found(&LAB)),
        trials: None,
        sched_ext: some_text("/sys/kernel/sched_ext/state"),
        cpuset: lacks.is_none(),
        container: matches!(lacks, Some(CpusetError::Container(_))),
        cpuset_lacks: lacks.map(|error| error.to_string()),
        btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
        tracepoints: tracepoints(),
        privileged: nix::unistd::geteuid().is_root(),
        ..of_spinlocks()
    }
}

/// What [`super::spinlock`] looks at.
pub(super) fn of_spinlocks() -> Facts {
    let kernel = text("/proc/sys/kernel/osrelease");
    Facts {
        cpuid: cpuid(),
        cpus: confine::online().map_or(0, |online| online.len() as u32),
        possible_cpus: confine::possible_vcpus(),
        config: config::settings(Path::new("/"), &kernel),
        kernel,
        command_line: text("/proc/cmdline"),
        ..Facts::default()
    }
}

/// The leaves that say which machine it is.
fn cpuid() -> Vec<Leaf> {
    let read = |leaf| {
        let CpuIdResult { eax, ebx, ecx, edx } = cpuid_count(leaf, 0);
        Leaf { leaf, eax, ebx, ecx, edx }
    };
    let (first, extended) = (read(0), read(0x8000_0000));
    let mut leaves = vec![first, read(1)];
    leaves.extend((first.eax >= 0x21).then(|| read(0x21)));
    if leaves[1].ecx & 1 << 31 != 0 {
        for base in [0x4000_0000_u32, 0x4000_0100] {
            let leaf = read(base);
            // KVM gives 0 for its highest leaf, where it means base + 1.
            let last = if leaf.eax == 0 { base + 1 } else { leaf.eax.min(base + 0x10) };
            leaves.push(leaf);
            leaves.extend((base + 1..=last).map(read));
        }
    }
    leaves.push(extended);
    leaves.extend((extended.eax >= 0x8000_001f).then(|| read(0x8000_001f)));
    leaves
}

/// Needs the module msr and root.
fn msr(number: u32) -> Option<u64> {
    let mut value = [0; 8];
    File::open("/dev/cpu/0/msr").ok()?.read_exact_at(&mut value, number.into()).ok()?;
    Some(u64::from_le_bytes(value))
}

/// The first line of the kernel's log that holds `what`.
fn log_line(what: &str) -> Option<String> {
    let mut log = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open("/dev/kmsg").ok()?;
    let mut record = vec![0; 8192];
    for _ in 0..LOG_RECORDS_MAX {
        // One record a read; the error at the end is that there is none yet.
        let length = log.read(&mut record).ok()?;
        let line = String::from_utf8_lossy(&record[..length]);
        let line = line.lines().next().unwrap_or_default();
        if line.contains(what) {
            return line.split_once(';').map(|(_, line)| line.to_owned());
        }
    }
    None
}

fn tracepoints() -> Option<BTreeSet<String>> {
    let roots = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"];
    let root = roots.iter().map(Path::new).find(|root| fs::read_dir(root).is_ok())?;
    let exists = |name: &&&str| root.join(name.replace(':', "/")).is_dir();
    Some(TRACEPOINTS.iter().filter(exists).map(|name| (*name).to_owned()).collect())
}

/// The administrator's file, or the distribution's own (os-release(5)).
fn os_release_file() -> String {
    some_text("/etc/os-release").unwrap_or_else(|| text("/usr/lib/os-release"))
}

/// The keys that matter, unquoted.
pub(super) fn os_release(file: &str) -> BTreeMap<String, String> {
    let pairs = file.lines().filter_map(|line| line.split_once('='));
    let wanted = pairs.filter(|(key, _)| OS_RELEASE.contains(key));
    let plain = |value: &str| value.trim().trim_matches(['"', '\'']).to_owned();
    wanted.map(|(key, value)| (key.to_owned(), plain(value))).collect()
}

/// Which of these there are: paths, and programs by name.
fn found(wanted: &[&str]) -> BTreeSet<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    let is_there = |name: &&&str| match name.starts_with('/') {
        true => Path::new(name).exists(),
        false => folders.iter().any(|folder| folder.join(name).is_file()),
    };
    wanted.iter().filter(is_there).map(|name| (*name).to_owned()).collect()
}

fn some_text(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn text(path: &str) -> String {
    some_text(path).unwrap_or_default()
}
