//! Properties that a guest reports about itself.

use std::fs;

use unspin_wire::{Hello, PROTOCOL};

/// Returns the hello.
pub fn hello() -> Hello {
    Hello {
        protocol: PROTOCOL,
        release: read("/proc/sys/kernel/osrelease"),
        vcpus: online_cpus(),
        memory_mib: memory_mib(),
        spinlock: spinlock_kind(&kernel_log(), hypervisor_bit()).to_owned(),
        sched_ext: fs::exists("/sys/kernel/sched_ext").unwrap_or(false),
    }
}

/// Returns the kind of spinlock that the kernel uses, according to its boot log and the hypervisor
/// bit.
///
/// On KVM, arch/x86/kernel/kvm.c logs the kind. Elsewhere, Linux takes the test-and-set lock
/// (`virt_spin_lock`) exactly if CPUID's hypervisor bit is set (arch/x86/kernel/paravirt.c, since
/// v4.2; a static key since v4.15).
pub fn spinlock_kind(log: &str, hypervisor: bool) -> &'static str {
    if log.contains("PV spinlocks enabled") {
        "PV qspinlock"
    } else if log.contains("PV spinlocks disabled, no host support") {
        "test-and-set"
    } else if log.contains("PV spinlocks disabled") || !hypervisor {
        "native qspinlock"
    } else {
        "test-and-set"
    }
}

/// Returns the number of online vCPUs, including those of `isolcpus=`, on which nothing runs
/// unasked.
pub fn online_cpus() -> u32 {
    count(&read("/sys/devices/system/cpu/online")).unwrap_or(1)
}

/// Returns the number of CPUs in a list such as `0-2,5`.
fn count(list: &str) -> Option<u32> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        (last.parse::<u32>().ok()? + 1).checked_sub(first.parse().ok()?)
    };
    list.split(',').map(range).sum()
}

fn memory_mib() -> u64 {
    let info = read("/proc/meminfo");
    let kib = info.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn hypervisor_bit() -> bool {
    read("/proc/cpuinfo").split_whitespace().any(|flag| flag == "hypervisor")
}

/// Returns the kernel's log so far. Each read of /dev/kmsg returns one record.
pub fn kernel_log() -> String {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let open =
        fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open("/dev/kmsg");
    let Ok(mut file) = open else { return String::new() };
    let mut log = String::new();
    let mut record = [0_u8; 8192];
    while let Ok(n @ 1..) = file.read(&mut record) {
        log.push_str(&String::from_utf8_lossy(&record[..n]));
    }
    log
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_of_online_cpus_counts() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-2,5,7-8"), Some(6));
        assert_eq!(count(""), None);
    }

    #[test]
    fn spinlock_kind_follows_the_kernels_words() {
        assert_eq!(spinlock_kind("kvm-guest: PV spinlocks enabled", true), "PV qspinlock");
        let forced = "kvm-guest: PV spinlocks disabled, forced by \"nopvspin\" parameter";
        assert_eq!(spinlock_kind(forced, true), "native qspinlock");
        let unsupported = "kvm-guest: PV spinlocks disabled, no host support";
        assert_eq!(spinlock_kind(unsupported, true), "test-and-set");
        assert_eq!(spinlock_kind("", true), "test-and-set");
        assert_eq!(spinlock_kind("", false), "native qspinlock");
    }
}
