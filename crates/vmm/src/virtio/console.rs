//! virtio-console (virtio 1.2, 5.3): the guest's output to /dev/hvc0 goes to a file.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::buffers::Buffers;
use super::ring::{Ring, Served, drain};
use super::{Description, F_COMMON, Left, Worker};
use crate::sandbox::Kind;

const DEVICE: u16 = 3;
/// PCI class: a simple communication controller of another kind.
const CLASS: u32 = 0x07_8000;
/// Index of the queue with the guest's output. The other queue, for input, stays unused.
const OUTPUT: usize = 1;
/// Bytes of configuration. No field is valid without the features for size, ports and emergency
/// output.
const CONFIG_BYTES: usize = 12;
/// The most bytes of a chain that the device writes. Linux writes at most 32 KiB at once.
const CHAIN_BYTES_MAX: usize = 64 << 10;

/// A console device.
#[derive(Debug)]
pub struct Console {
    file: File,
}

impl Console {
    /// Returns a console that writes to `file`, which is nonblocking.
    pub fn new(file: File) -> Console {
        Console { file }
    }

    /// Returns the properties that the driver sees.
    pub fn description() -> Description {
        let (features, config) = (F_COMMON, vec![0; CONFIG_BYTES]);
        Description { device: DEVICE, class: CLASS, features, needs: &[], config, queues: 2 }
    }

    /// Writes at most [`CHAIN_BYTES_MAX`] of a chain. The device cannot report a full file system,
    /// or a missing reader: the output of that chain is lost.
    fn write(&self, mut output: Buffers) -> Served {
        output.truncate(CHAIN_BYTES_MAX);
        let served = Served { written: 0, moved: output.bytes() };
        while output.bytes() > 0 {
            match output.write_to(self.file.as_raw_fd()) {
                Ok(done @ 1..) => output.skip(done),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        served
    }
}

impl Worker for Console {
    fn kind(&self) -> Kind {
        Kind::Console
    }

    fn handle(&mut self, queue: usize, rings: &mut [Option<Ring>]) -> Left {
        match &mut rings[queue] {
            Some(ring) if queue == OUTPUT => {
                drain(ring, |chain| self.write(std::mem::take(&mut chain.readable)))
            }
            _ => Left::Nothing,
        }
    }
}
