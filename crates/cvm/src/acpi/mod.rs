//! ACPI tables for a guest without firmware: RSDP, XSDT, FADT, MADT and DSDT.

mod dsdt;

use acpi_tables::Aml;
use acpi_tables::facs::FACS;
use acpi_tables::fadt::{FADTBuilder, Flags};
use acpi_tables::rsdp::Rsdp;
use acpi_tables::sdt::Sdt;
use acpi_tables::xsdt::XSDT;
use serde::Serialize;

const OEM: [u8; 6] = *b"UNSPIN";
const OEM_TABLE: [u8; 8] = *b"UNSPIN  ";
const OEM_REVISION: u32 = 1;
/// Tables begin at multiples of it.
const ALIGNMENT: u64 = 64;

/// Address of the local APICs.
const LOCAL_APIC: u32 = 0xfee0_0000;
/// Address of the I/O APIC.
const IO_APIC: u32 = 0xfec0_0000;
/// Numbers from here on need the x2APIC's structure.
const APIC_IDS: u32 = 255;
/// Enabled.
const CPU_ENABLED: u32 = 1;
/// The machine has the PC's two 8259s, too.
const PCAT_COMPAT: u32 = 1;

/// Where QEMU's q35 and pc have the power-management registers.
const PM_BASE: u32 = 0x600;
/// The interrupt by which ACPI reports its events there.
const SCI: u16 = 9;

/// Which ACPI a guest gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Acpi {
    /// No tables.
    None,
    /// Hardware-reduced: no power-management registers, timer or legacy interrupts.
    Reduced,
    /// A PC: with power-management registers at port 0x600.
    Pc,
}

/// The tables, from the RSDP on, for that address.
pub fn tables(base: u64, vcpus: u32, acpi: Acpi) -> Vec<u8> {
    let mut blob = Blob { base, bytes: vec![0; ALIGNMENT as usize] };
    let facs = (acpi == Acpi::Pc).then(|| blob.add(&bytes(&FACS::new())));
    let dsdt = blob.add(dsdt::table(acpi).as_slice());
    let fadt = blob.add(&fadt(acpi, dsdt, facs));
    let madt = blob.add(madt(vcpus).as_slice());
    let mut xsdt = XSDT::new(OEM, OEM_TABLE, OEM_REVISION);
    xsdt.add_entry(fadt);
    xsdt.add_entry(madt);
    let xsdt = blob.add(&bytes(&xsdt));
    let rsdp = bytes(&Rsdp::new(OEM, xsdt));
    blob.bytes[..rsdp.len()].copy_from_slice(&rsdp);
    blob.bytes
}

/// Tables one behind the other.
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

fn bytes(table: &dyn Aml) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.to_aml_bytes(&mut bytes);
    bytes
}

fn fadt(acpi: Acpi, dsdt: u64, facs: Option<u64>) -> Vec<u8> {
    let mut fadt = FADTBuilder::new(OEM, OEM_TABLE, OEM_REVISION)
        .dsdt_64(dsdt)
        .flag(Flags::Wbinvd)
        .flag(Flags::PwrButton)
        .flag(Flags::SlpButton);
    if acpi == Acpi::Reduced {
        return bytes(&fadt.flag(Flags::HwReducedAcpi).finalize());
    }
    fadt = fadt.firmware_ctrl_32(facs.unwrap_or(0) as u32).flag(Flags::ProcC1);
    // Without an SMI command port, the machine is in ACPI mode from the start.
    fadt.sci_int = SCI.into();
    fadt.pm1a_evt_blk = PM_BASE.into();
    fadt.pm1_evt_len = 4;
    fadt.pm1a_cnt_blk = (PM_BASE + 4).into();
    fadt.pm1_cnt_len = 2;
    fadt.pm_tmr_blk = (PM_BASE + 8).into();
    fadt.pm_tmr_len = 4;
    // Latencies of C2 and C3 that say: there are none.
    fadt.p_lvl2_lat = 0xfff.into();
    fadt.p_lvl3_lat = 0xfff.into();
    bytes(&fadt.finalize())
}

fn madt(vcpus: u32) -> Sdt {
    let mut entries = [LOCAL_APIC.to_le_bytes(), PCAT_COMPAT.to_le_bytes()].concat();
    for id in 0..vcpus {
        match u8::try_from(id) {
            // Processor and APIC have the same number.
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
    // NMIs of all processors are at LINT1.
    entries.extend([4, 6, 0xff, 0, 0, 1]);
    let mut madt = Sdt::new(*b"APIC", 36, 4, OEM, OEM_TABLE, OEM_REVISION);
    madt.append_slice(&entries);
    madt
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{u32_at, u64_at};

    const BASE: u64 = 0xe_0000;

    fn at(blob: &[u8], address: u64) -> &[u8] {
        &blob[(address - BASE) as usize..]
    }

    /// A table at an address; its checksum is right.
    fn table(blob: &[u8], address: u64) -> &[u8] {
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
            let xsdt = table(&blob, u64_at(&blob, 24));
            let (fadt, madt) = (table(&blob, u64_at(xsdt, 36)), table(&blob, u64_at(xsdt, 44)));
            assert_eq!(
                (&xsdt[..4], &fadt[..4], &madt[..4]),
                (&b"XSDT"[..], &b"FACP"[..], &b"APIC"[..])
            );
            assert_eq!(&table(&blob, u64_at(fadt, 140))[..4], b"DSDT");
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

    /// The APIC numbers in a MADT.
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
