//! KVM's data about a VM, and the one KVM setting that the lab changes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use unspin_model::FailureKind;
use unspin_wire::Failure;

use crate::truth::tracefs::{Instance, of_threads};

const PARAMETERS: &str = "/sys/module/kvm_amd/parameters";
/// The number of consecutive PAUSEs that count as a spin loop. A hardware filter lets 3,000 of them
/// pass (kvm_amd's `pause_filter_count`), some 50 us of spinning. Under emulation, one PAUSE exit
/// follows the other after about 25 us.
const SOFT_PAUSE_COUNT: &str = "2";
const EXIT_HISTOGRAM: &str = "hist:keys=isa,exit_reason";

/// Turns PAUSE exits on or off for VMs that are created from now on.
///
/// If the CPU has no pause filter, the lab kernel's kvm_amd counts PAUSEs itself, with a limit that
/// can change at any time. On other hosts, the modules' parameters are fixed at load, so this
/// function only checks them.
pub fn set_pause_exits(on: bool) -> Result<(), Failure> {
    let soft = Path::new(PARAMETERS).join("soft_pause_count");
    if soft.exists() {
        let value = if on { SOFT_PAUSE_COUNT } else { "0" };
        return fs::write(&soft, value).map_err(|e| refused(&format!("{}: {e}", soft.display())));
    }
    match hardware_pause_exits() {
        Some(state) if state == on => Ok(()),
        Some(_) => Err(refused(&format!(
            "this host's KVM has pause exits {}: reload kvm_intel with ple_gap={} or kvm_amd with pause_filter_count={}",
            if on { "off" } else { "on" },
            if on { 128 } else { 0 },
            if on { 3000 } else { 0 },
        ))),
        None => Err(refused("no kvm_intel or kvm_amd module tells whether PAUSE exits")),
    }
}

fn hardware_pause_exits() -> Option<bool> {
    ["kvm_intel/parameters/ple_gap", "kvm_amd/parameters/pause_filter_count"]
        .iter()
        .find_map(|file| fs::read_to_string(Path::new("/sys/module").join(file)).ok())
        .and_then(|value| value.trim().parse::<u64>().ok())
        .map(|value| value != 0)
}

fn refused(detail: &str) -> Failure {
    Failure::new(FailureKind::Unavailable, detail)
}

/// Counters of a VM's events from start to stop.
pub struct Counters {
    folder: Option<PathBuf>,
    before: BTreeMap<String, u64>,
    exits: Option<Instance>,
}

impl Counters {
    /// Starts counting. Counts nothing if the VM has no KVM or debugfs is not available.
    pub fn start(pid: u32, vcpu_threads: &[i32]) -> Counters {
        let folder = debugfs_folder(pid);
        let exits = folder.as_ref().and_then(|_| start_histogram(vcpu_threads));
        let before = folder.as_deref().map(read_counters).unwrap_or_default();
        Counters { folder, before, exits }
    }

    /// Returns the differences since the start: debugfs counters by name, exits as `exit:REASON`.
    pub fn stop(self) -> BTreeMap<String, u64> {
        let after = self.folder.as_deref().map(read_counters).unwrap_or_default();
        let mut counts: BTreeMap<String, u64> = after
            .into_iter()
            .filter_map(|(name, value)| {
                let more = value.checked_sub(*self.before.get(&name)?)?;
                (more > 0).then_some((name, more))
            })
            .collect();
        if let Some(instance) = &self.exits {
            let histogram = instance.read("events/kvm/kvm_exit/hist").unwrap_or_default();
            counts.extend(parse_histogram(&histogram));
        }
        counts
    }
}

/// Returns the guest's time stamp counter minus the host's. Returns `None` if KVM does not publish
/// it, the vCPUs differ, or the counter runs at another rate.
pub fn counter_shift(pid: u32, vcpus: u32) -> Option<i64> {
    let folder = debugfs_folder(pid)?;
    let read = |vcpu: u32, file: &str| {
        fs::read_to_string(folder.join(format!("vcpu{vcpu}")).join(file)).ok()
    };
    let mut shifts = (0..vcpus).map(|vcpu| {
        let scaled = read(vcpu, "tsc-scaling-ratio").is_some_and(|ratio| !is_one(&ratio));
        let shift = read(vcpu, "tsc-offset")?.trim().parse::<i64>().ok()?;
        (!scaled).then_some(shift)
    });
    let first = shifts.next()??;
    shifts.all(|shift| shift == Some(first)).then_some(first)
}

/// Returns whether a ratio is 1. The hardware's ratios have 32 (SVM) or 48 (VMX) fraction bits.
fn is_one(ratio: &str) -> bool {
    ratio.trim().parse::<u64>().is_ok_and(|ratio| ratio == 1 << 32 || ratio == 1 << 48)
}

fn debugfs_folder(pid: u32) -> Option<PathBuf> {
    let prefix = format!("{pid}-");
    let entries = fs::read_dir("/sys/kernel/debug/kvm").ok()?;
    let mut names = entries.flatten();
    names.find(|e| e.file_name().to_string_lossy().starts_with(&prefix)).map(|e| e.path())
}

fn read_counters(folder: &Path) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let value = fs::read_to_string(entry.path()).ok()?.trim().parse().ok()?;
            Some((entry.file_name().to_string_lossy().into_owned(), value))
        })
        .collect()
}

fn start_histogram(vcpu_threads: &[i32]) -> Option<Instance> {
    let instance = Instance::create("kvm").ok()?;
    instance.write("events/kvm/kvm_exit/trigger", &trigger(vcpu_threads)).ok()?;
    Some(instance)
}

/// Returns the trigger of the exit histogram. The tracepoint fires for every VM on this machine; a
/// vCPU exits in its own thread.
fn trigger(vcpu_threads: &[i32]) -> String {
    format!("{EXIT_HISTOGRAM} if {}", of_threads(&["common_pid"], vcpu_threads))
}

/// Parses lines such as `{ isa: 2, exit_reason: 119 } hitcount: 4711`.
fn parse_histogram(text: &str) -> BTreeMap<String, u64> {
    let number = |line: &str, key: &str| -> Option<u64> {
        let rest = &line[line.find(key)? + key.len()..];
        rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines
        .filter_map(|line| {
            let isa = number(line, "isa:")?;
            let reason = number(line, "exit_reason:")?;
            Some((format!("exit:{}", reason_name(isa, reason)), number(line, "hitcount:")?))
        })
        .collect()
}

/// Returns KVM's name of an exit reason (arch/x86/include/uapi/asm/svm.h and vmx.h).
fn reason_name(isa: u64, reason: u64) -> String {
    const VMX: u64 = 1;
    let name = match (isa, reason) {
        (VMX, 1) | (_, 0x60) => "interrupt",
        (VMX, 7) | (_, 0x64) => "interrupt-window",
        (VMX, 10) | (_, 0x72) => "cpuid",
        (VMX, 12) | (_, 0x78) => "hlt",
        (VMX, 18) | (_, 0x81) => "hypercall",
        (VMX, 30) | (_, 0x7b) => "io",
        (VMX, 31 | 32) | (_, 0x7c) => "msr",
        (VMX, 40) | (_, 0x77) => "pause",
        (VMX, 48) | (_, 0x400) => "page-fault",
        _ => return format!("{reason:#x}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_vms_own_exits_are_counted() {
        let expected = "hist:keys=isa,exit_reason if common_pid == 11 || common_pid == 12";
        assert_eq!(trigger(&[11, 12]), expected);
    }

    #[test]
    fn exit_histogram_is_read() {
        let text = "# event histogram\n#\n\n\
            { isa:          2, exit_reason:        119 } hitcount:       4711\n\
            { isa:          2, exit_reason:        120 } hitcount:         12\n\n\
            Totals:\n    Hits: 4723\n";
        let counts = parse_histogram(text);
        assert_eq!(counts["exit:pause"], 4711);
        assert_eq!(counts["exit:hlt"], 12);
        assert_eq!(counts.len(), 2);
    }
}
