//! The memory layout of a guest that [`crate::build`] prepares.
//!
//! The layout depends on the inputs alone, so the same inputs make the same bytes.

/// The global descriptor table.
pub const GDT: u64 = 0x6000;
/// Linux's boot_params, its "zero page".
pub const BOOT_PARAMS: u64 = 0x7000;
/// Six pages of page tables.
pub const PAGE_TABLES: u64 = 0x9000;
/// The command line.
pub const COMMAND_LINE: u64 = 0x2_0000;
/// The longest command line that fits, in bytes with its final NUL.
pub const COMMAND_LINE_BYTES_MAX: u64 = 0x1_0000;
/// The data by which an SNP guest finds its special pages, which follow: secrets, then CPUID.
pub const SNP_BLOB: u64 = 0x8_0000;
/// The page that SNP's firmware fills with secrets.
pub const SNP_SECRETS: u64 = 0x8_1000;
/// The page of CPUID values that SNP's firmware checks.
pub const SNP_CPUID: u64 = 0x8_2000;
/// The page at which the other vCPUs of an SEV-ES guest start: the AP jump table, then code.
pub const AP_START: u64 = 0x8_3000;
/// ACPI tables, the RSDP first, in the area that a kernel without a pointer searches for it.
pub const ACPI: u64 = 0xe_0000;
/// The end of the area of ACPI tables.
pub const ACPI_END: u64 = 0x10_0000;
/// The highest end of the memory below the hole for devices: 3 GiB.
pub const LOW_MEMORY_END: u64 = 0xc000_0000;
/// The address at which memory continues above that hole: 4 GiB.
pub const HIGH_MEMORY: u64 = 0x1_0000_0000;
/// The end of the addresses that a guest can have: 1 TiB.
pub const MEMORY_BYTES_MAX: u64 = 1 << 40;

/// The e820 type of memory.
pub const RAM: u32 = 1;
/// The e820 type of reserved addresses.
pub const RESERVED: u32 = 2;
/// The e820 type of memory that is free once the kernel has read the tables in it.
pub const ACPI_RECLAIMABLE: u32 = 3;

/// A range of the e820 map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// [`RAM`], [`RESERVED`] or [`ACPI_RECLAIMABLE`].
    pub kind: u32,
}

/// Returns the memory map of a guest with `memory_bytes` of memory.
pub fn e820(memory_bytes: u64) -> Vec<Range> {
    let low_end = memory_bytes.min(LOW_MEMORY_END);
    let high_end = HIGH_MEMORY + memory_bytes.saturating_sub(LOW_MEMORY_END);
    let range = |start, end, kind| Range { start, end, kind };
    let ranges = [
        range(0, SNP_BLOB, RAM),
        range(SNP_BLOB, 0xa_0000, RESERVED),
        range(ACPI, ACPI_END, ACPI_RECLAIMABLE),
        range(ACPI_END, low_end, RAM),
        range(HIGH_MEMORY, high_end, RAM),
    ];
    ranges.into_iter().filter(|range| range.start < range.end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_around_the_hole_for_devices() {
        let ram = |bytes: u64| -> u64 {
            let ram = e820(bytes).into_iter().filter(|range| range.kind == RAM);
            ram.map(|range| range.end - range.start).sum()
        };
        let lost = ACPI_END - SNP_BLOB;
        assert_eq!(ram(512 << 20), (512 << 20) - lost);
        assert_eq!(ram(8 << 30), (8 << 30) - lost);
        assert_eq!(e820(3 << 30).len(), 4);
        assert_eq!(e820(8 << 30)[4].end, 9 << 30);
    }
}
