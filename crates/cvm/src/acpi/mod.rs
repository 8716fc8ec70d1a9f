//! ACPI tables for a guest without firmware: RSDP, XSDT, FADT, MADT and DSDT.

mod dsdt;

use serde::Serialize;

const OEM: [u8; 6] = *b"UNSPIN";
const OEM_TABLE: [u8; 8] = *b"UNSPIN  ";
const OEM_REVISION: u32 = 1;
/// The creator of the tables, in place of an AML compiler.
const CREATOR: [u8; 4] = *b"UNSP";
const CREATOR_REVISION: u32 = 1;
/// Bytes of a table's header (ACPI 6.5, 5.2.6).
const HEADER: usize = 36;
/// The alignment of tables.
const ALIGNMENT: u64 = 64;

/// Address of the local APICs.
const LOCAL_APIC: u32 = 0xfee0_0000;
/// Address of the I/O APIC.
const IO_APIC: u32 = 0xfec0_0000;
/// The first APIC ID that needs an x2APIC structure.
const APIC_IDS: u32 = 255;
/// Flag of a local APIC: the processor is enabled.
const CPU_ENABLED: u32 = 1;
/// Flag of the MADT: the machine has the PC's two 8259s, too.
const PCAT_COMPAT: u32 = 1;

/// The port of the power-management registers of QEMU's q35 and pc.
const PM_BASE: u32 = 0x600;
/// The interrupt by which ACPI reports its events on these machines.
const SCI: u16 = 9;

/// The kind of ACPI that a guest gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Acpi {
    /// No ACPI tables.
    None,
    /// Hardware-reduced: no power-management registers, timer or legacy interrupts.
    Reduced,
    /// A PC, with power-management registers at port 0x600.
    Pc,
}

/// Returns the tables, with the RSDP first, for the address `base`.
pub fn tables(base: u64, vcpus: u32, acpi: Acpi) -> Vec<u8> {
    let mut blob = Blob { base, bytes: vec![0; ALIGNMENT as usize] };
    let facs = (acpi == Acpi::Pc).then(|| blob.add(&facs()));
    let dsdt = blob.add(&dsdt::table(acpi));
    let fadt = blob.add(&fadt(acpi, dsdt, facs));
    let madt = blob.add(&madt(vcpus));
    let entries = [fadt, madt].map(u64::to_le_bytes).concat();
    let xsdt = blob.add(&table(*b"XSDT", 1, &entries));
    let rsdp = rsdp(xsdt);
    blob.bytes[..rsdp.len()].copy_from_slice(&rsdp);
    blob.bytes
}

/// Returns a table with a header that includes its length and checksum.
fn table(signature: [u8; 4], revision: u8, body: &[u8]) -> Vec<u8> {
    let bytes = (HEADER + body.len()) as u32;
    let mut table =
        [&signature[..], &bytes.to_le_bytes(), &[revision, 0], &OEM, &OEM_TABLE].concat();
    table.extend([OEM_REVISION.to_le_bytes(), CREATOR, CREATOR_REVISION.to_le_bytes()].concat());
    table.extend(body);
    table[9] = checksum(&table);
    table
}

/// Returns the byte that makes the sum of all bytes 0.
fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_sub(*byte))
}

/// Returns an RSDP of revision 2 (ACPI 6.5, 5.2.5.3). The first checksum covers revision 1's bytes.
fn rsdp(xsdt: u64) -> [u8; 36] {
    let mut rsdp = [0; 36];
    rsdp[..8].copy_from_slice(b"RSD PTR ");
    rsdp[9..15].copy_from_slice(&OEM);
    rsdp[15] = 2;
    rsdp[20] = 36;
    rsdp[24..32].copy_from_slice(&xsdt.to_le_bytes());
    rsdp[8] = checksum(&rsdp[..20]);
    rsdp[32] = checksum(&rsdp);
    rsdp
}

/// Returns a FACS that requests nothing (5.2.10).
fn facs() -> [u8; 64] {
    let mut facs = [0; 64];
    facs[..4].copy_from_slice(b"FACS");
    facs[4] = 64;
    facs[32] = 1;
    facs
}

/// Consecutive tables from the address `base` on.
struct Blob {
    base: u64,
    bytes: Vec<u8>,
}

impl Blob {
    /// Adds a table and returns its address.
    fn add(&mut self, table: &[u8]) -> u64 {
        let at = (self.bytes.len() as u64).next_multiple_of(ALIGNMENT);
        self.bytes.resize(at as usize, 0);
        self.bytes.extend(table);
        self.base + at
    }
}

/// The flags of a FADT that this crate uses (5.2.9).
const WBINVD: u32 = 1 << 0;
const PROC_C1: u32 = 1 << 2;
const NO_POWER_BUTTON: u32 = 1 << 4;
const NO_SLEEP_BUTTON: u32 = 1 << 5;
const REDUCED: u32 = 1 << 20;

fn fadt(acpi: Acpi, dsdt: u64, facs: Option<u64>) -> Vec<u8> {
    let mut body = [0; 276 - HEADER];
    // Offsets count from the start of the table, as in the specification.
    let mut put = |at: usize, bytes: &[u8]| {
        body[at - HEADER..][..bytes.len()].copy_from_slice(bytes);
    };
    let flags = WBINVD | NO_POWER_BUTTON | NO_SLEEP_BUTTON;
    let flags = flags | if acpi == Acpi::Reduced { REDUCED } else { PROC_C1 };
    put(112, &flags.to_le_bytes());
    // The minor version of ACPI 6.5.
    put(131, &[5]);
    put(140, &dsdt.to_le_bytes());
    if acpi != Acpi::Reduced {
        put(36, &(facs.unwrap_or(0) as u32).to_le_bytes());
        // Without an SMI command port, the machine is in ACPI mode from the start.
        put(46, &SCI.to_le_bytes());
        for (at, block, at_length, length) in [(56, 0, 88, 4), (64, 4, 89, 2), (76, 8, 91, 4)] {
            put(at, &(PM_BASE + block).to_le_bytes());
            put(at_length, &[length]);
        }
        // These latencies of C2 and C3 mean that neither exists.
        put(96, &[0xff, 0x0f, 0xff, 0x0f]);
    }
    table(*b"FACP", 6, &body)
}

fn madt(vcpus: u32) -> Vec<u8> {
    let mut entries = [LOCAL_APIC.to_le_bytes(), PCAT_COMPAT.to_le_bytes()].concat();
    for id in 0..vcpus {
        match u8::try_from(id) {
            // The ACPI processor has the same number as its APIC.
            Ok(short) if id < APIC_IDS => {
                entries.extend([0, 8, short, short]);
                entries.extend(CPU_ENABLED.to_le_bytes());
            }
            _ => {
                entries.extend([9, 16, 0, 0]);
                entries.extend([id, CPU_ENABLED, id].iter().flat_map(|word| word.to_le_bytes()));
            }
        }
    }
    entries.extend([1, 12, 0, 0]);
    entries.extend([IO_APIC, 0].iter().flat_map(|word| word.to_le_bytes()));
    // ISA's timer interrupt 0 arrives at input 2, edge-triggered; the SCI is level-triggered.
    entries.extend([2, 10, 0, 0, 2, 0, 0, 0, 0, 0]);
    entries.extend([2, 10, 0, SCI as u8, SCI as u8, 0, 0, 0, 0x0d, 0]);
    // The NMIs of all processors arrive at LINT1.
    entries.extend([4, 6, 0xff, 0, 0, 1]);
    table(*b"APIC", 4, &entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{u32_at, u64_at};

    const BASE: u64 = 0xe_0000;

    fn at(blob: &[u8], address: u64) -> &[u8] {
        &blob[(address - BASE) as usize..]
    }

    /// Returns the table at an address, and checks its checksum.
    fn table_at(blob: &[u8], address: u64) -> &[u8] {
        let bytes = u32_at(at(blob, address), 4) as usize;
        let table = &at(blob, address)[..bytes];
        assert_eq!(table.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)), 0);
        table
    }

    #[test]
    fn the_rsdp_leads_to_all_tables() {
        for (acpi, vcpus) in [(Acpi::Reduced, 1), (Acpi::Pc, 4), (Acpi::Pc, 4096)] {
            let blob = tables(BASE, vcpus, acpi);
            assert!(blob.len() as u64 <= crate::layout::ACPI_END - BASE, "{}", blob.len());
            assert_eq!(
                (&blob[..8], blob[..36].iter().fold(0u8, |a, b| a.wrapping_add(*b))),
                (&b"RSD PTR "[..], 0)
            );
            let xsdt = table_at(&blob, u64_at(&blob, 24));
            let (fadt, madt) =
                (table_at(&blob, u64_at(xsdt, 36)), table_at(&blob, u64_at(xsdt, 44)));
            assert_eq!(
                (&xsdt[..4], &fadt[..4], &madt[..4]),
                (&b"XSDT"[..], &b"FACP"[..], &b"APIC"[..])
            );
            assert_eq!(&table_at(&blob, u64_at(fadt, 140))[..4], b"DSDT");
            let reduced = u32_at(fadt, 112) >> 20 & 1 == 1;
            assert_eq!(reduced, acpi == Acpi::Reduced);
            if !reduced {
                let facs = u32_at(fadt, 36).into();
                assert_eq!((&at(&blob, facs)[..4], facs % 64), (&b"FACS"[..], 0));
                assert_eq!((u32_at(fadt, 56), fadt[88]), (PM_BASE, 4));
            }
            assert_eq!(processors(madt), (0..vcpus).collect::<Vec<_>>());
        }
    }

    /// Returns the APIC IDs in a MADT.
    fn processors(madt: &[u8]) -> Vec<u32> {
        let (mut rest, mut found) = (&madt[44..], Vec::new());
        while let [kind, bytes, ..] = *rest {
            match kind {
                0 => found.push(rest[3].into()),
                9 => found.push(u32_at(rest, 4)),
                _ => {}
            }
            rest = &rest[usize::from(bytes)..];
        }
        found
    }
}
