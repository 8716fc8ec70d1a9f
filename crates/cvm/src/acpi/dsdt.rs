//! The DSDT: a PCI host bridge with ports 0xcf8 and 0xcfc, a serial port, and the power-off state.
//!
//! The code writes only the part of AML (ACPI 6.5, chapter 20) that this table needs.

use super::{Acpi, IO_APIC};
use crate::layout;

/// Returns the DSDT.
pub fn table(acpi: Acpi) -> Vec<u8> {
    let mut body = scope(b"_SB_", &[bridge(), serial()].concat());
    // Hardware-reduced ACPI powers off by registers that no machine here has.
    if acpi == Acpi::Pc {
        body.extend(name(b"_S5_", &package(&[ZERO; 4])));
    }
    super::table(*b"DSDT", 6, &body)
}

/// Gives PCI all other ports, and the memory below 4 GiB that is not RAM.
fn bridge() -> Vec<u8> {
    let resources = [
        words(BUS_NUMBERS, 0, 0, 0xff),
        io(0xcf8, 1, 8),
        words(IO, ENTIRE, 0, 0xcf7),
        words(IO, ENTIRE, 0xd00, 0xffff),
        memory(layout::LOW_MEMORY_END as u32, IO_APIC - 1),
    ];
    device(b"PCI0", 0x0a03, &resources.concat())
}

fn serial() -> Vec<u8> {
    device(b"COM1", 0x0501, &[io(0x3f8, 0, 8), interrupt(4)].concat())
}

/// Returns a device with an EISA ID of the vendor "PNP", and the resources that it uses.
fn device(path: &[u8; 4], pnp: u16, resources: &[u8]) -> Vec<u8> {
    let [high, low] = pnp.to_be_bytes();
    let children = [
        name(b"_HID", &[DWORD, 0x41, 0xd0, high, low]),
        name(b"_UID", &[ZERO]),
        name(b"_CRS", &buffer(&[resources, &END_TAG].concat())),
    ];
    packed(&[0x5b, 0x82], &[&path[..], &children.concat()].concat())
}

const ZERO: u8 = 0;
const BYTE: u8 = 0x0a;
const DWORD: u8 = 0x0c;

fn scope(path: &[u8; 4], children: &[u8]) -> Vec<u8> {
    packed(&[0x10], &[&path[..], children].concat())
}

fn name(path: &[u8; 4], object: &[u8]) -> Vec<u8> {
    [&[0x08], &path[..], object].concat()
}

/// Returns a package of objects of one byte each.
fn package(objects: &[u8]) -> Vec<u8> {
    packed(&[0x12], &[&[objects.len() as u8], objects].concat())
}

/// Returns a buffer of at most 255 bytes.
fn buffer(bytes: &[u8]) -> Vec<u8> {
    packed(&[0x11], &[&[BYTE, bytes.len() as u8], bytes].concat())
}

/// Returns an opcode, the length of the rest, and the rest. The length counts its own bytes. A
/// length below 64 has one byte. A longer one has two, the first of which holds the lower four
/// bits.
fn packed(opcode: &[u8], content: &[u8]) -> Vec<u8> {
    let length = match content.len() + 1 {
        short @ ..0x40 => vec![short as u8],
        long => vec![0x40 | ((long + 1) & 0xf) as u8, ((long + 1) >> 4) as u8],
    };
    [opcode, &length, content].concat()
}

/// Kinds of address space (6.4.3.5).
const MEMORY: u8 = 0;
const IO: u8 = 1;
const BUS_NUMBERS: u8 = 2;
/// The minimum and the maximum are fixed, and the bridge forwards the range.
const FIXED: u8 = 0x0c;
/// The range includes all its ports, not only ISA's.
const ENTIRE: u8 = 3;
const READ_WRITE: u8 = 1;
/// The end tag. A checksum of 0 means that readers do not check it.
const END_TAG: [u8; 2] = [0x79, 0];

fn words(kind: u8, flags: u8, first: u16, last: u16) -> Vec<u8> {
    let numbers = [0, first, last, 0, (last - first).wrapping_add(1)];
    [&[0x88, 13, 0, kind, FIXED, flags][..], &numbers.map(u16::to_le_bytes).concat()].concat()
}

fn memory(first: u32, last: u32) -> Vec<u8> {
    let numbers = [0, first, last, 0, last - first + 1];
    let head = [0x87, 23, 0, MEMORY, FIXED, READ_WRITE];
    [&head[..], &numbers.map(u32::to_le_bytes).concat()].concat()
}

/// Returns a range of I/O ports with 16-bit addresses.
fn io(first: u16, alignment: u8, count: u8) -> Vec<u8> {
    let [low, high] = first.to_le_bytes();
    vec![0x47, 1, low, high, low, high, alignment, count]
}

/// Returns an interrupt that is edge-triggered, active high and not shared.
fn interrupt(number: u32) -> Vec<u8> {
    [&[0x89, 6, 0, 3, 1][..], &number.to_le_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_reach_to_the_ends() {
        let table = table(Acpi::Reduced);
        let scope = &table[36..];
        assert_eq!((scope[0], scope[1] >> 6, &scope[3..7]), (0x10, 1, &b"_SB_"[..]));
        let length = usize::from(scope[1] & 0xf) | usize::from(scope[2]) << 4;
        assert_eq!(1 + length, scope.len());
        assert!(scope.ends_with(&END_TAG));
        assert_eq!(packed(&[0x12], &[7; 62])[..2], [0x12, 63]);
        assert_eq!(packed(&[0x12], &[7; 63])[..3], [0x12, 0x41, 4]);
    }

    #[test]
    fn numbers_and_ranges_are_as_the_specification_has_them() {
        let bytes = table(Acpi::Pc);
        let holds = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        assert!(holds(b"\x08_HID\x0c\x41\xd0\x0a\x03") && holds(b"\x08_HID\x0c\x41\xd0\x05\x01"));
        assert!(holds(&[0x88, 13, 0, 1, 0x0c, 3, 0, 0, 0, 0, 0xf7, 0x0c, 0, 0, 0xf8, 0x0c]));
        assert!(bytes.ends_with(b"\x08_S5_\x12\x06\x04\0\0\0\0"));
    }
}
