//! The host bridge: access to configuration space by ports, and the address map of device memory.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use unspin_cvm::layout::LOW_MEMORY_END;

use super::config::Config;
use super::virtio::{BAR_BYTES, Function};
use crate::machine::lock;

/// The most devices: those of a bus, without the bridge itself.
pub const DEVICES_MAX: usize = 31;
const ADDRESS_PORT: u16 = 0xcf8;
const DATA_PORT: u16 = 0xcfc;
/// The bit of the address that selects an access to configuration space.
const ENABLE: u32 = 1 << 31;
/// Red Hat's generic host bridge, as in QEMU. Linux checks the class only.
const VENDOR: u16 = 0x1b36;
const DEVICE: u16 = 0x0008;
const CLASS: u32 = 0x06_0000;

/// Bus 0: the bridge is device 0, and virtio devices follow.
#[derive(Debug)]
pub struct Host {
    address: AtomicU32,
    bridge: Config,
    functions: Vec<Mutex<Function>>,
}

/// Returns the address of a device's memory. Devices are numbered from 0.
pub fn bar(device: usize) -> u32 {
    LOW_MEMORY_END as u32 + device as u32 * BAR_BYTES
}

impl Host {
    /// Returns a bus with these devices, in order. Each has its memory at [`bar`].
    pub fn new(functions: Vec<Function>) -> Host {
        let bridge = Config::new(VENDOR, DEVICE, CLASS, 0);
        let functions = functions.into_iter().map(Mutex::new).collect();
        Host { address: AtomicU32::new(0), bridge, functions }
    }

    /// Reads a configuration port.
    pub fn port_read(&self, port: u16, data: &mut [u8]) {
        let address = self.address.load(Ordering::Relaxed);
        if port < DATA_PORT {
            let bytes = address.to_le_bytes();
            let from = bytes.get(usize::from(port - ADDRESS_PORT)..).unwrap_or_default();
            data.iter_mut().zip(from).for_each(|(byte, value)| *byte = *value);
            return;
        }
        let Some((device, at)) = target(address, port) else { return };
        match device.checked_sub(1) {
            None => self.bridge.read(at, data),
            Some(index) => {
                if let Some(function) = self.functions.get(index) {
                    lock(function).read_config(at, data);
                }
            }
        }
    }

    /// Writes a configuration port.
    pub fn port_write(&self, port: u16, data: &[u8]) {
        if let (ADDRESS_PORT, Ok(bytes)) = (port, data.try_into()) {
            self.address.store(u32::from_le_bytes(bytes), Ordering::Relaxed);
        }
        if port < DATA_PORT {
            return;
        }
        let target = target(self.address.load(Ordering::Relaxed), port);
        let Some((device @ 1.., at)) = target else { return };
        if let Some(function) = self.functions.get(device - 1) {
            lock(function).write_config(at, data);
        }
    }

    /// Reads a device's memory.
    pub fn memory_read(&self, address: u64, data: &mut [u8]) {
        if let Some((function, at)) = self.find(address) {
            lock(function).read(at, data);
        }
    }

    /// Writes a device's memory.
    pub fn memory_write(&self, address: u64, data: &[u8]) {
        if let Some((function, at)) = self.find(address) {
            lock(function).write(at, data);
        }
    }

    /// Stops all devices after they have finished their requests in flight.
    pub fn stop(&self) {
        self.functions.iter().for_each(|function| lock(function).reset());
    }

    fn find(&self, address: u64) -> Option<(&Mutex<Function>, usize)> {
        let offset = address.checked_sub(LOW_MEMORY_END)?;
        let (index, at) = (offset / u64::from(BAR_BYTES), offset % u64::from(BAR_BYTES));
        Some((self.functions.get(usize::try_from(index).ok()?)?, at as usize))
    }
}

/// Returns device and offset of an access to the data port. Only bus 0 and functions 0 exist.
fn target(address: u32, port: u16) -> Option<(usize, usize)> {
    let (bus, function) = (address >> 16 & 0xff, address >> 8 & 7);
    let there = address & ENABLE != 0 && bus == 0 && function == 0;
    let at = (address & 0xfc) as usize + usize::from(port - DATA_PORT);
    there.then_some(((address >> 11 & 0x1f) as usize, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linuxs_test_of_the_ports_finds_a_host_bridge() {
        let host = Host::new(vec![]);
        host.port_write(0xcf8, &0x8000_0000u32.to_le_bytes());
        let mut address = [0; 4];
        host.port_read(0xcf8, &mut address);
        assert_eq!(address, 0x8000_0000u32.to_le_bytes());
        host.port_write(0xcf8, &0x8000_0008u32.to_le_bytes());
        let mut class = [0; 2];
        host.port_read(0xcfe, &mut class);
        assert_eq!(class, [0, 6]);
        host.port_write(0xcf8, &0x8000_0800u32.to_le_bytes());
        let mut absent = [0xff; 4];
        host.port_read(0xcfc, &mut absent);
        assert_eq!(absent, [0xff; 4]);
        host.port_read(0xcfb, &mut [0; 8]);
        host.port_write(0xcff, &[0; 8]);
        host.memory_write(u64::MAX, &[0; 8]);
        host.memory_read(0, &mut [0; 8]);
    }
}
