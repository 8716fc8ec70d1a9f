//! A guest's memory, as a file fills it.

use std::collections::BTreeMap;

use crate::PAGE_BYTES;
use crate::cpu::CpuState;
use crate::measure::Page;
use crate::page_tables::{ADDRESS, LARGE, PRESENT};
use crate::snp::PageType;

/// The C-bit's positions on AMD's processors so far, and the positions between.
const C_BITS: u64 = 0x1f << 47;
/// Bit of CR4: page tables have five levels.
const CR4_LA57: u64 = 1 << 12;

/// Pages by address. If several have one address, the last one counts.
#[derive(Debug, Default)]
pub struct Memory<'a>(BTreeMap<u64, Page<'a>>);

impl<'a> Memory<'a> {
    /// Returns the memory of these pages, without VMSAs.
    pub fn of(pages: &[Page<'a>]) -> Memory<'a> {
        let pages = pages.iter().filter(|page| page.kind != PageType::Vmsa);
        Memory(pages.map(|page| (page.gpa, *page)).collect())
    }

    /// Returns the page that contains an address.
    pub fn page(&self, gpa: u64) -> Option<&Page<'a>> {
        self.0.get(&(gpa & !(PAGE_BYTES - 1)))
    }

    /// Returns at most `max` bytes from an address on, as far as the file has them.
    pub fn bytes(&self, gpa: u64, max: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(at) = gpa.checked_add(bytes.len() as u64).filter(|_| bytes.len() < max) {
            let Some(page) = self.page(at) else { break };
            bytes.extend(&page.contents()[(at % PAGE_BYTES) as usize..]);
        }
        bytes.truncate(max);
        bytes
    }

    fn u64(&self, gpa: u64) -> Option<u64> {
        let page = self.page(gpa)?.contents();
        let at = (gpa % PAGE_BYTES) as usize & !7;
        page[at..at + 8].try_into().ok().map(u64::from_le_bytes)
    }
}

/// The result of an address translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapped {
    /// The guest-physical address.
    pub gpa: u64,
    /// Whether each entry on the way has a C-bit.
    pub private: bool,
}

/// The reason why an address is not mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmapped {
    /// This table is not in the file.
    Table(u64),
    /// The entry at this address is not present.
    Entry(u64),
}

/// Walks the page tables of a vCPU in 64-bit mode. With `c_bits`, the upper bits of addresses count
/// as C-bits.
pub fn walk(
    memory: &Memory,
    cpu: &CpuState,
    c_bits: bool,
    address: u64,
) -> Result<Mapped, Unmapped> {
    let c_bits = if c_bits { C_BITS } else { 0 };
    let levels = if cpu.get("cr4") & CR4_LA57 != 0 { 5 } else { 4 };
    let mut entry = cpu.get("cr3");
    let mut private = entry & c_bits != 0;
    for level in (0..levels).rev() {
        let table = entry & ADDRESS & !c_bits;
        let shift = 12 + 9 * level;
        let at = table + 8 * (address >> shift & 511);
        entry = memory.u64(at).ok_or(Unmapped::Table(table))?;
        if entry & PRESENT == 0 {
            return Err(Unmapped::Entry(at));
        }
        private &= entry & c_bits != 0;
        if level == 0 || (level <= 2 && entry & LARGE != 0) {
            let inside = (1 << shift) - 1;
            let gpa = entry & ADDRESS & !c_bits & !inside | address & inside;
            return Ok(Mapped { gpa, private });
        }
    }
    Err(Unmapped::Entry(entry))
}
