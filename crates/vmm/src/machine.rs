//! The machine as its vCPUs see it: I/O ports and device memory.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use vmm_sys_util::eventfd::EventFd;

use crate::access::conversions::Conversions;
use crate::error::Ended;
use crate::pc::clock::{self, Clock};
use crate::pc::power::{self, Power};
use crate::pc::serial::{COM1, Com1};
use crate::pci::host::Host;

/// Locks a mutex, even if it is poisoned: a thread that panicked with the lock has ended the VM.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The VM's end. Only the first reason counts.
#[derive(Debug)]
pub struct End {
    ended: OnceLock<Ended>,
    /// An event that is readable once the VM has ended.
    pub event: EventFd,
}

impl End {
    /// Returns the end of a VM that still runs. `event` is nonblocking.
    pub fn new(event: EventFd) -> End {
        End { ended: OnceLock::new(), event }
    }

    /// Ends the VM.
    pub fn set(&self, ended: Ended) {
        let _ = self.ended.set(ended);
        // The write fails only if the counter is full, and then the event is readable.
        let _ = self.event.write(1);
    }

    /// Returns the reason if the VM has ended.
    pub fn get(&self) -> Option<&Ended> {
        self.ended.get()
    }
}

/// A guard that ends the VM if its thread panics.
#[derive(Debug)]
pub struct PanicEnds(pub Arc<End>);

impl Drop for PanicEnds {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.set(Ended::Failed("a thread panicked: please report it".into()));
        }
    }
}

/// All devices that vCPUs reach by VM exits.
#[derive(Debug)]
pub struct Machine {
    /// The serial port.
    pub com1: Com1,
    /// ACPI's power-management registers.
    pub power: Power,
    /// The CMOS clock.
    pub clock: Clock,
    /// The PCI bus.
    pub pci: Host,
    /// The guest's conversions of pages, if KVM reports them.
    pub conversions: Option<Conversions>,
    /// The VM's end.
    pub end: Arc<End>,
}

impl Machine {
    /// Reads from a port. A port without a device reads as all ones, as on a bus.
    pub fn port_read(&self, port: u16, data: &mut [u8]) {
        data.fill(0xff);
        match port {
            COM1..0x400 => self.com1.read(port - COM1, data),
            power::PM_BASE..power::PM_END => self.power.read(port - power::PM_BASE, data),
            clock::CLOCK..clock::CLOCK_END => self.clock.read(port - clock::CLOCK, data),
            // The controller's buffers are empty.
            power::I8042_COMMAND => data.fill(0),
            0xcf8..0xd00 => self.pci.port_read(port, data),
            _ => {}
        }
    }

    /// Writes to a port.
    pub fn port_write(&self, port: u16, data: &[u8]) {
        let ended = match port {
            COM1..0x400 => {
                self.com1.write(port - COM1, data);
                None
            }
            power::PM_BASE..power::PM_END => self.power.write(port - power::PM_BASE, data),
            clock::CLOCK..clock::CLOCK_END => {
                self.clock.write(port - clock::CLOCK, data);
                None
            }
            power::I8042_COMMAND => power::i8042_command(data),
            0xcf8..0xd00 => {
                self.pci.port_write(port, data);
                None
            }
            _ => None,
        };
        if let Some(ended) = ended {
            self.end.set(ended);
        }
    }

    /// Reads from device memory.
    pub fn memory_read(&self, address: u64, data: &mut [u8]) {
        data.fill(0xff);
        self.pci.memory_read(address, data);
    }

    /// Writes to device memory.
    pub fn memory_write(&self, address: u64, data: &[u8]) {
        self.pci.memory_write(address, data);
    }
}
