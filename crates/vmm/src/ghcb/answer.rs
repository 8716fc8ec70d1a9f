//! The requests of the GHCB protocol that concern devices, and their answers (AMD, SEV-ES
//! Guest-Hypervisor Communication Block Standardization, 2.03).
//!
//! The guest may change the page while this program reads it. So the code reads each field once,
//! checks that value, and uses that value.

use std::io;

use super::page::Page;
use crate::machine::Machine;

/// Offsets of the page's fields.
const RAX: usize = 0x1f8;
const EXIT_CODE: usize = 0x390;
const INFO_1: usize = 0x398;
const INFO_2: usize = 0x3a0;
const SCRATCH: usize = 0x3a8;
const VALID: usize = 0x3f0;
const BUFFER: usize = 0x800;
const BUFFER_END: usize = 0xff0;
const USAGE: usize = 0xffc;

/// Exit codes.
const IOIO: u64 = 0x7b;
const MMIO_READ: u64 = 0x8000_0001;
const MMIO_WRITE: u64 = 0x8000_0002;

/// The SW_EXITINFO1 of a refusal. SW_EXITINFO2 has the reason.
const REFUSED: u64 = 2;
const INVALID_USAGE: u64 = 2;
const INVALID_SCRATCH: u64 = 3;
const MISSING_INPUT: u64 = 4;
const INVALID_INPUT: u64 = 5;
const INVALID_EVENT: u64 = 6;

/// The most bytes of an access to device memory.
const MMIO_BYTES_MAX: u64 = 8;

/// The address of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// An I/O port.
    Port(u16),
    /// A guest-physical address.
    Memory(u64),
}

/// The devices that an answer may access.
pub trait Devices {
    /// Reads from the device at a place.
    fn read(&self, place: Place, data: &mut [u8]);
    /// Writes to the device at a place.
    fn write(&self, place: Place, data: &[u8]);
}

impl Devices for Machine {
    fn read(&self, place: Place, data: &mut [u8]) {
        match place {
            Place::Port(port) => self.port_read(port, data),
            Place::Memory(address) => self.memory_read(address, data),
        }
    }

    fn write(&self, place: Place, data: &[u8]) {
        match place {
            Place::Port(port) => self.port_write(port, data),
            Place::Memory(address) => self.memory_write(address, data),
        }
    }
}

/// Why a request has no answer.
enum Stop {
    /// The request is refused; the guest gets this reason.
    Refused(u64),
    /// The page cannot be reached.
    Page(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Page(error)
    }
}

/// Answers the request in the page at guest-physical address `gpa`. Fails if the page cannot be
/// reached.
pub fn answer(page: &mut impl Page, gpa: u64, devices: &impl Devices) -> io::Result<()> {
    match serve(page, gpa, devices) {
        Ok(()) => infos(page, 0, 0),
        Err(Stop::Refused(reason)) => infos(page, REFUSED, reason),
        Err(Stop::Page(error)) => Err(error),
    }
}

/// Writes SW_EXITINFO1 and SW_EXITINFO2.
fn infos(page: &mut impl Page, one: u64, two: u64) -> io::Result<()> {
    page.write(INFO_1, &pair(one, two))
}

fn pair(one: u64, two: u64) -> [u8; 16] {
    (u128::from(one) | u128::from(two) << 64).to_le_bytes()
}

/// Reads two adjoining fields of 8 bytes.
fn read_pair(page: &mut impl Page, offset: usize) -> io::Result<(u64, u64)> {
    let mut bytes = [0; 16];
    page.read(offset, &mut bytes)?;
    let both = u128::from_le_bytes(bytes);
    Ok((both as u64, (both >> 64) as u64))
}

/// Returns the bit of a field in VALID_BITMAP.
const fn valid(field: usize) -> u128 {
    1 << (field / 8)
}

fn serve(page: &mut impl Page, gpa: u64, devices: &impl Devices) -> Result<(), Stop> {
    let mut usage = [0; 4];
    page.read(USAGE, &mut usage)?;
    if usage != [0; 4] {
        return Err(Stop::Refused(INVALID_USAGE));
    }
    let (low, high) = read_pair(page, VALID)?;
    let given = Given(u128::from(low) | u128::from(high) << 64);
    given.want(valid(EXIT_CODE) | valid(INFO_1) | valid(INFO_2))?;
    let (code, info) = read_pair(page, EXIT_CODE)?;
    match code {
        IOIO => port(page, gpa, devices, given, info),
        MMIO_READ | MMIO_WRITE => {
            given.want(valid(SCRATCH))?;
            let place = Place::Memory(info);
            let (bytes, scratch) = read_pair(page, INFO_2)?;
            if !(1..=MMIO_BYTES_MAX).contains(&bytes) {
                return Err(Stop::Refused(INVALID_INPUT));
            }
            let data = Data::new(scratch, gpa, bytes as usize, 1)?;
            data.pass(page, devices, place, code == MMIO_READ)
        }
        _ => Err(Stop::Refused(INVALID_EVENT)),
    }
}

/// The fields that the guest has filled.
#[derive(Clone, Copy)]
struct Given(u128);

impl Given {
    fn want(self, fields: u128) -> Result<(), Stop> {
        if self.0 & fields == fields { Ok(()) } else { Err(Stop::Refused(MISSING_INPUT)) }
    }
}

/// Serves IN, OUT, INS and OUTS, as SW_EXITINFO1 describes them.
fn port(
    page: &mut impl Page,
    gpa: u64,
    devices: &impl Devices,
    given: Given,
    info: u64,
) -> Result<(), Stop> {
    let (is_read, is_string) = (info & 1 != 0, info & 1 << 2 != 0);
    let place = Place::Port((info >> 16) as u16);
    let size = match info >> 4 & 7 {
        size @ (1 | 2 | 4) => size as usize,
        _ => return Err(Stop::Refused(INVALID_INPUT)),
    };
    if is_string {
        given.want(valid(SCRATCH))?;
        let (count, scratch) = read_pair(page, INFO_2)?;
        let data = Data::new(scratch, gpa, size, count)?;
        return data.pass(page, devices, place, is_read);
    }
    let mut rax = [0; 8];
    if is_read {
        devices.read(place, &mut rax[..size]);
        page.write(RAX, &rax)?;
        let fields = valid(RAX);
        page.write(VALID, &fields.to_le_bytes())?;
    } else {
        given.want(valid(RAX))?;
        page.read(RAX, &mut rax)?;
        devices.write(place, &rax[..size]);
    }
    Ok(())
}

/// The part of the page's buffer through which accesses pass their data.
struct Data {
    start: usize,
    bytes: usize,
    size: usize,
}

impl Data {
    /// Returns the data of `count` accesses of `size` bytes. Version 2 of the protocol requires the
    /// data to be in the page.
    fn new(scratch: u64, gpa: u64, size: usize, count: u64) -> Result<Data, Stop> {
        let start = (scratch & 0xfff) as usize;
        let room = BUFFER_END.saturating_sub(start) as u64;
        let bytes = count.checked_mul(size as u64).filter(|bytes| *bytes <= room);
        match bytes {
            Some(bytes) if start >= BUFFER && scratch & !0xfff == gpa => {
                Ok(Data { start, bytes: bytes as usize, size })
            }
            _ => Err(Stop::Refused(INVALID_SCRATCH)),
        }
    }

    fn pass(
        &self,
        page: &mut impl Page,
        devices: &impl Devices,
        place: Place,
        is_read: bool,
    ) -> Result<(), Stop> {
        let mut data = [0; BUFFER_END - BUFFER];
        let data = &mut data[..self.bytes];
        if is_read {
            data.chunks_mut(self.size).for_each(|part| devices.read(place, part));
            page.write(self.start, data)?;
        } else {
            page.read(self.start, data)?;
            data.chunks(self.size).for_each(|part| devices.write(place, part));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
