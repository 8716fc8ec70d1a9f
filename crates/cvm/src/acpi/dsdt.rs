//! The DSDT: a PCI host bridge by ports 0xcf8 and 0xcfc, a serial port, and how to power off.

use acpi_tables::aml::{
    AddressSpace, AddressSpaceCacheable, Device, EISAName, IO, Interrupt, Name, PackageBuilder,
    Path, ResourceTemplate, Scope, ZERO,
};
use acpi_tables::sdt::Sdt;
use acpi_tables::{Aml, AmlSink};

use super::{Acpi, IO_APIC, OEM, OEM_REVISION, OEM_TABLE, bytes};
use crate::layout;

/// The table.
pub fn table(acpi: Acpi) -> Sdt {
    let mut dsdt = Sdt::new(*b"DSDT", 36, 6, OEM, OEM_TABLE, OEM_REVISION);
    let devices = [Raw(bridge()), Raw(serial())];
    let scope = Scope::new(Path::new("_SB_"), devices.iter().map(|it| it as &dyn Aml).collect());
    dsdt.append_slice(&bytes(&scope));
    // Hardware-reduced ACPI powers off by registers that no machine here has.
    if acpi == Acpi::Pc {
        let mut states = PackageBuilder::new();
        (0..4).for_each(|_| states.add_element(&ZERO));
        dsdt.append_slice(&bytes(&Name::new(Path::new("_S5_"), &states)));
    }
    dsdt
}

/// Bytes that are AML already.
struct Raw(Vec<u8>);

impl Aml for Raw {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        sink.vec(&self.0);
    }
}

/// All ports and the memory below 4 GiB that is not RAM are PCI's.
fn bridge() -> Vec<u8> {
    let (start, end) = (layout::LOW_MEMORY_END as u32, IO_APIC - 1);
    let cacheable = AddressSpaceCacheable::NotCacheable;
    let buses = AddressSpace::new_bus_number(0u16, 255);
    let configuration = IO::new(0xcf8, 0xcf8, 1, 8);
    let (below, above) =
        (AddressSpace::new_io(0u16, 0xcf7, None), AddressSpace::new_io(0xd00u16, 0xffff, None));
    let memory = AddressSpace::new_memory(cacheable, true, start, end, None);
    let resources: [&dyn Aml; 5] = [&buses, &configuration, &below, &above, &memory];
    device("PCI0", "PNP0A03", &ResourceTemplate::new(resources.to_vec()))
}

fn serial() -> Vec<u8> {
    let (ports, interrupt) =
        (IO::new(0x3f8, 0x3f8, 0, 8), Interrupt::new(true, true, false, false, 4));
    device("COM1", "PNP0501", &ResourceTemplate::new(vec![&ports, &interrupt]))
}

fn device(name: &str, hid: &str, resources: &ResourceTemplate) -> Vec<u8> {
    let hid = EISAName::new(hid);
    let children: [&dyn Aml; 3] = [
        &Name::new(Path::new("_HID"), &hid),
        &Name::new(Path::new("_UID"), &ZERO),
        &Name::new(Path::new("_CRS"), resources),
    ];
    bytes(&Device::new(Path::new(name), children.to_vec()))
}
