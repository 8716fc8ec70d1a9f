//! Linux at its 64-bit entry: boot_params, command line, initramfs, memory map, ACPI.
//!
//! The checks apply only if RSI points to boot_params with the kernel's magic number.

use super::Found;
use crate::PAGE_BYTES;
use crate::boot_params::{
    ACPI_RSDP_ADDR, BYTES, CMD_LINE_PTR, E820_ENTRIES, E820_ENTRY_BYTES, E820_TABLE, RAMDISK_IMAGE,
    RAMDISK_SIZE,
};
use crate::cpu::CpuState;
use crate::kernel::{
    CMDLINE_SIZE, ENTRY_64, INIT_SIZE, MAGIC, XLF_KERNEL_64, XLOADFLAGS, u16_at, u32_at, u64_at,
};
use crate::layout::RAM;
use crate::memory::Memory;

/// The upper halves of addresses, for data above 4 GiB.
const EXT_RAMDISK_IMAGE: usize = 0xc0;
const EXT_RAMDISK_SIZE: usize = 0xc4;
const EXT_CMD_LINE_PTR: usize = 0xc8;
/// The longest command line to look at. No kernel reads more, whatever boot_params say.
const COMMAND_LINE_MAX: usize = 1 << 20;
/// The number of entries that boot_params have room for.
const E820_ENTRIES_MAX: usize = 128;

/// Checks the data that a vCPU passes to Linux.
pub fn check(memory: &Memory, vcpu: &CpuState, found: &mut Found) {
    let at = vcpu.get("rsi");
    let params = memory.bytes(at, BYTES);
    let is_linux = params.get(MAGIC..MAGIC + 4) == Some(b"HdrS");
    if params.len() < BYTES || !is_linux || vcpu.mode == "aarch64" {
        return;
    }
    let mut wrong = |what: String| found.error(Some(vcpu.directive), what);
    if vcpu.mode != "64-bit" {
        wrong(format!("boot_params are at {at:#x}, but the vCPU starts in {} mode", vcpu.mode));
    }
    if u16_at(&params, XLOADFLAGS) & XLF_KERNEL_64 == 0 {
        wrong("the kernel has no 64-bit entry: XLF_KERNEL_64 is not set in boot_params".into());
    }
    let subjects =
        [command_line(memory, &params), initramfs(memory, &params), rsdp(memory, &params)];
    subjects.into_iter().flatten().for_each(&mut wrong);
    if let Some(what) = memory_map(vcpu, &params) {
        wrong(what);
    }
}

/// Returns an address whose upper half is in another field.
fn address(params: &[u8], low: usize, high: usize) -> u64 {
    u64::from(u32_at(params, low)) | u64::from(u32_at(params, high)) << 32
}

fn command_line(memory: &Memory, params: &[u8]) -> Option<String> {
    let at = address(params, CMD_LINE_PTR, EXT_CMD_LINE_PTR);
    let max = u32_at(params, CMDLINE_SIZE) as usize;
    if at == 0 {
        return None;
    }
    let line = memory.bytes(at, max.min(COMMAND_LINE_MAX) + 1);
    if line.is_empty() {
        return Some(format!("the command line at {at:#x} is not in the file"));
    }
    let missing = !line.contains(&0);
    missing.then(|| {
        format!("the command line at {at:#x} is longer than the {max} bytes that the kernel reads")
    })
}

fn initramfs(memory: &Memory, params: &[u8]) -> Option<String> {
    let start = address(params, RAMDISK_IMAGE, EXT_RAMDISK_IMAGE);
    let bytes = address(params, RAMDISK_SIZE, EXT_RAMDISK_SIZE);
    let end = start.saturating_add(bytes);
    let mut at = start;
    while at < end {
        match memory.page(at) {
            None => {
                return Some(format!(
                    "the initramfs at {start:#x} is not in the file from {at:#x} on"
                ));
            }
            Some(page) if !page.measured => {
                return Some(format!("the page of the initramfs at {at:#x} is not measured"));
            }
            Some(_) => at = (at & !(PAGE_BYTES - 1)).saturating_add(PAGE_BYTES),
        }
    }
    None
}

fn rsdp(memory: &Memory, params: &[u8]) -> Option<String> {
    let at = u64_at(params, ACPI_RSDP_ADDR);
    if at == 0 {
        return None;
    }
    let rsdp = memory.bytes(at, 36);
    let sum = rsdp.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    let good = rsdp.len() == 36 && rsdp.starts_with(b"RSD PTR ") && sum == 0;
    if !good {
        return Some(format!(
            "boot_params name {at:#x} as the address of the RSDP, but no valid RSDP is there"
        ));
    }
    let xsdt = memory.bytes(u64_at(&rsdp, 24), 4);
    (xsdt != b"XSDT").then(|| format!("the RSDP at {at:#x} leads to no XSDT in the file"))
}

/// Checks that the map has memory for the kernel and the memory that it uses at first.
fn memory_map(vcpu: &CpuState, params: &[u8]) -> Option<String> {
    let entries = usize::from(params[E820_ENTRIES]);
    if entries == 0 || entries > E820_ENTRIES_MAX {
        return Some(format!("the memory map (e820) has {entries} entries"));
    }
    let start = vcpu.get("rip").saturating_sub(ENTRY_64);
    let end = start.saturating_add(u64::from(u32_at(params, INIT_SIZE)));
    let covers = |index: usize| {
        let at = E820_TABLE + index * E820_ENTRY_BYTES;
        let (first, bytes) = (u64_at(params, at), u64_at(params, at + 8));
        let is_ram = u32_at(params, at + 16) == RAM;
        is_ram && first <= start && first.saturating_add(bytes) >= end
    };
    let covered = (0..entries).any(covers);
    (!covered)
        .then(|| format!("no memory of the map (e820) holds the kernel's {start:#x} to {end:#x}"))
}
