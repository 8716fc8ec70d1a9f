//! virtio-console (virtio 1.2, 5.3): what the guest writes to /dev/hvc0 goes to a file.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::buffers::Buffers;
use super::ring::{Ring, Served, drain};
use super::{Description, F_COMMON, Left, Worker};
use crate::sandbox::Kind;

const DEVICE: u16 = 3;
/// PCI: a simple communication controller, of another kind.
const CLASS: u32 = 0x07_8000;
/// Index of the queue with the guest's output. The other one, for input, stays unused.
const OUTPUT: usize = 1;
/// Without the features of size, ports and emergency output, no field is valid.
const CONFIG_BYTES: usize = 12;
/// The most bytes of a chain that are written. A write in Linux has 32 KiB at most.
const CHAIN_BYTES_MAX: usize = 64 << 10;

/// The device.
#[derive(Debug)]
pub struct Console {
    file: File,
}

impl Console {
    /// A console that writes to `file`, which is not blocking.
    pub fn new(file: File) -> Console {
        Console { file }
    }

    /// What the driver sees.
    pub fn description() -> Description {
        let (features, config) = (F_COMMON, vec![0; CONFIG_BYTES]);
        Description { device: DEVICE, class: CLASS, features, needs: &[], config, queues: 2 }
    }

    /// Writes a chain, as much of it as has [`CHAIN_BYTES_MAX`]. The device has no way to report
    /// that a file system is full, or that nobody reads: the output of that chain is lost.
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
