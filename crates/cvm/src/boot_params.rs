//! Linux's boot_params, the "zero page" (Documentation/arch/x86/zero-page.rst).

use crate::kernel::{Kernel, SETUP_HEADER};
use crate::layout;

/// Bytes of the structure.
pub const BYTES: usize = 4096;

/// Physical address of the RSDP.
pub(crate) const ACPI_RSDP_ADDR: usize = 0x70;
/// Number of entries of the memory map.
pub(crate) const E820_ENTRIES: usize = 0x1e8;
const VID_MODE: usize = 0x1fa;
const TYPE_OF_LOADER: usize = 0x210;
/// Address of the initramfs, and its size.
pub(crate) const RAMDISK_IMAGE: usize = 0x218;
pub(crate) const RAMDISK_SIZE: usize = 0x21c;
/// Address of the command line.
pub(crate) const CMD_LINE_PTR: usize = 0x228;
/// Address of the list of `setup_data`.
const SETUP_DATA: usize = 0x250;
/// The memory map.
pub(crate) const E820_TABLE: usize = 0x2d0;
/// Bytes of an entry of the memory map.
pub(crate) const E820_ENTRY_BYTES: usize = 20;

/// The loader type of loaders without an assigned number.
const LOADER_UNDEFINED: u8 = 0xff;
const VID_MODE_NORMAL: u16 = 0xffff;

/// The data that the guest finds in memory, with their addresses.
#[derive(Debug, Clone, Copy, Default)]
pub struct Found {
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Address of the RSDP, if there are ACPI tables.
    pub rsdp: Option<u64>,
    /// Address and bytes of the initramfs, if there is one.
    pub initramfs: Option<(u64, u64)>,
    /// Address of a list of `setup_data`, if there is one.
    pub setup_data: Option<u64>,
}

/// Returns the page, for a kernel that finds its command line at [`layout::COMMAND_LINE`].
pub fn page(kernel: &Kernel, found: Found) -> Vec<u8> {
    let mut page = vec![0; BYTES];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(SETUP_HEADER, kernel.setup_header);
    put(VID_MODE, &VID_MODE_NORMAL.to_le_bytes());
    put(TYPE_OF_LOADER, &[LOADER_UNDEFINED]);
    put(CMD_LINE_PTR, &(layout::COMMAND_LINE as u32).to_le_bytes());
    put(ACPI_RSDP_ADDR, &found.rsdp.unwrap_or(0).to_le_bytes());
    put(SETUP_DATA, &found.setup_data.unwrap_or(0).to_le_bytes());
    if let Some((address, bytes)) = found.initramfs {
        put(RAMDISK_IMAGE, &(address as u32).to_le_bytes());
        put(RAMDISK_SIZE, &(bytes as u32).to_le_bytes());
    }
    let ranges = layout::e820(found.memory_bytes);
    put(E820_ENTRIES, &[ranges.len() as u8]);
    for (range, index) in ranges.iter().zip(0..) {
        let at = E820_TABLE + index * E820_ENTRY_BYTES;
        put(at, &range.start.to_le_bytes());
        put(at + 8, &(range.end - range.start).to_le_bytes());
        put(at + 16, &range.kind.to_le_bytes());
    }
    page
}
