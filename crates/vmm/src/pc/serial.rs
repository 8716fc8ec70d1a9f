//! The serial port COM1. The guest's output goes to standard output.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex};

use vm_superio::serial::SerialEvents;
use vm_superio::{Serial, Trigger};
use vmm_sys_util::eventfd::EventFd;

use crate::machine::{End, lock};

/// The first of the port's eight I/O ports.
pub const COM1: u16 = 0x3f8;
/// The port's ISA interrupt.
pub const COM1_IRQ: u32 = 4;

/// An event that KVM turns into an interrupt.
#[derive(Debug)]
struct Interrupt(EventFd);

impl Trigger for Interrupt {
    type E = io::Error;

    fn trigger(&self) -> io::Result<()> {
        self.0.write(1)
    }
}

/// An event that asks for more input when the guest has read all of it.
#[derive(Debug)]
struct Drained(EventFd);

impl SerialEvents for Drained {
    fn buffer_read(&self) {}
    fn out_byte(&self) {}
    fn tx_lost_byte(&self) {}

    fn in_buffer_empty(&self) {
        // If the counter is full, the event is readable as well.
        let _ = self.0.write(1);
    }
}

/// The serial port.
#[derive(Debug)]
pub struct Com1 {
    /// The registers, with the output that [`Com1::write`] prints as soon as it releases their
    /// lock.
    serial: Mutex<Serial<Interrupt, Drained, Vec<u8>>>,
    /// The file of the output. Only vCPUs take this lock, because its holder may wait for a reader.
    output: Mutex<File>,
    end: Arc<End>,
}

impl Com1 {
    /// Returns a port that writes to `output` until `end`, and signals when the guest has read its
    /// input.
    pub fn new(
        interrupt: EventFd,
        drained: EventFd,
        output: impl AsFd,
        end: Arc<End>,
    ) -> io::Result<Com1> {
        let output = Mutex::new(File::from(output.as_fd().try_clone_to_owned()?));
        let serial = Serial::with_events(Interrupt(interrupt), Drained(drained), Vec::new());
        Ok(Com1 { serial: Mutex::new(serial), output, end })
    }

    /// Reads a register.
    pub fn read(&self, offset: u16, data: &mut [u8]) {
        let mut serial = lock(&self.serial);
        data.iter_mut().for_each(|byte| *byte = serial.read(offset as u8));
    }

    /// Writes a register. If the output is blocked, waits for its reader until a signal arrives
    /// after the VM's end. Output that nobody reads any more is lost.
    pub fn write(&self, offset: u16, data: &[u8]) {
        let mut serial = lock(&self.serial);
        for byte in data {
            let _ = serial.write(offset as u8, *byte);
        }
        let bytes = std::mem::take(serial.writer_mut());
        drop(serial);
        if !bytes.is_empty() {
            self.put(&bytes);
        }
    }

    fn put(&self, mut bytes: &[u8]) {
        let mut output = lock(&self.output);
        while !bytes.is_empty() {
            match output.write(bytes) {
                Ok(done @ 1..) => bytes = &bytes[done..],
                Err(error) if self.end.get().is_none() => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    // A process that shares the file may have made it nonblocking.
                    io::ErrorKind::WouldBlock => wait_for_room(&output),
                    _ => return,
                },
                _ => return,
            }
        }
    }

    /// Returns the number of bytes of input that the port has room for.
    pub fn room(&self) -> usize {
        lock(&self.serial).fifo_capacity()
    }

    /// Passes input to the guest. `bytes` must not exceed [`Com1::room`].
    pub fn input(&self, bytes: &[u8]) {
        // In loopback mode, the port takes nothing from outside.
        let _ = lock(&self.serial).enqueue_raw_bytes(bytes);
    }
}

/// Waits until a file takes output, or a signal arrives. The caller's next write finds out which.
fn wait_for_room(file: &File) {
    let mut entry = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: the list has one entry.
    unsafe { libc::poll(&mut entry, 1, -1) };
}
