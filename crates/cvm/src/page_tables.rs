//! Page tables that map each of the first 4 GiB to itself, in pages of 2 MiB.
//!
//! Linux's 64-bit entry requires this mapping for its image, boot_params and command line
//! (Documentation/arch/x86/boot.rst). On SEV, a C-bit makes a page private, so each entry has it.

/// Pages of tables: one for each upper level, and one for each GiB.
pub const PAGES: usize = 2 + GIBS;
const GIBS: usize = 4;
const ENTRIES: usize = 512;
const LARGE_PAGE_BYTES: u64 = 1 << 21;

/// An entry's bits: present, writable, accessed. The CPU would set clear accessed and dirty bits,
/// and the memory would then differ from the file.
const TABLE: u64 = 0x23;
/// The same bits for a large page, and dirty.
const LARGE_PAGE: u64 = 0xe3;

/// The address bits of an entry for pages of 4 KiB.
pub(crate) const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// The entry maps a page or a table.
pub(crate) const PRESENT: u64 = 1;
/// The entry of an upper level maps a large page.
pub(crate) const LARGE: u64 = 1 << 7;

/// Returns the tables for the address `base`, which becomes CR3. `c_bit` is the C-bit's number, if
/// there is one.
pub fn identity(base: u64, c_bit: Option<u8>) -> Vec<u8> {
    let private = c_bit.map_or(0, |bit| 1 << bit);
    let table = |page: usize| (base + page as u64 * crate::PAGE_BYTES) | TABLE | private;
    let mut entries = vec![0u64; PAGES * ENTRIES];
    entries[0] = table(1);
    for gib in 0..GIBS {
        entries[ENTRIES + gib] = table(2 + gib);
    }
    for (index, entry) in entries[2 * ENTRIES..].iter_mut().enumerate() {
        *entry = (index as u64 * LARGE_PAGE_BYTES) | LARGE_PAGE | private;
    }
    entries.iter().flat_map(|entry| entry.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_below_4_gib_is_mapped_to_itself() {
        let base = 0x9000;
        for c_bit in [None, Some(47), Some(51)] {
            let tables = identity(base, c_bit);
            assert_eq!(tables.len(), PAGES * 4096);
            let private = c_bit.map_or(0, |bit: u8| 1u64 << bit);
            let entry = |table: u64, index: u64| {
                let at = (table - base + 8 * index) as usize;
                let entry = u64::from_le_bytes(tables[at..at + 8].try_into().unwrap());
                assert_eq!((entry & PRESENT, entry & private), (PRESENT, private));
                (entry & ADDRESS & !private, entry & LARGE != 0)
            };
            for address in [0, 0x1f_ffff, 0x20_0000, 0x100_0200, 0xffff_f000] {
                let (pdpt, _) = entry(base, address >> 39);
                let (pd, _) = entry(pdpt, address >> 30);
                let (page, large) = entry(pd, address >> 21 & 511);
                assert!(large);
                assert_eq!(page, address & !(LARGE_PAGE_BYTES - 1), "{address:#x}");
            }
        }
    }
}
