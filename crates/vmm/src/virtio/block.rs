//! virtio-blk (virtio 1.2, 5.2): a disk in a raw file.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::ring::{Chain, DRAIN_BYTES, Ring, Served, drain};
use super::{Description, F_COMMON, Left, QUEUE_SIZE, Worker};
use crate::sandbox::Kind;

/// Bytes of a sector, the unit of the device's capacity and addresses.
pub const SECTOR_BYTES: u64 = 512;
/// The most bytes of one request. The limits that the device offers to drivers are smaller.
pub const REQUEST_BYTES_MAX: u64 = 8 << 20;

/// The bytes that a flush counts as for [`drain`], because a flush can take tens of milliseconds.
const FLUSH_COUNTS: u64 = DRAIN_BYTES / 16;

const DEVICE: u16 = 2;
/// PCI class: a mass storage controller of another kind.
const CLASS: u32 = 0x01_8000;
const F_SIZE_MAX: u64 = 1 << 1;
const F_SEG_MAX: u64 = 1 << 2;
const F_READ_ONLY: u64 = 1 << 5;
/// `VIRTIO_BLK_F_FLUSH`. A driver that does not accept it expects a completed write to be stable.
pub const F_FLUSH: u64 = 1 << 9;
/// The most segments of a request, because header and status need descriptors, too.
const SEGMENTS_MAX: u32 = QUEUE_SIZE as u32 / 2 - 2;
/// The most bytes of a segment.
const SEGMENT_BYTES_MAX: u32 = 1 << 16;
const CONFIG_BYTES: usize = 36;

/// Types of requests.
const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
/// Bytes of the answer to [`GET_ID`], padded with zeros.
const ID_BYTES: usize = 20;

/// Statuses of requests.
const STATUS_OK: u8 = 0;
const STATUS_IO_ERROR: u8 = 1;
const STATUS_UNSUPPORTED: u8 = 2;

/// A disk device.
#[derive(Debug)]
pub struct Block {
    file: File,
    bytes: u64,
    read_only: bool,
    id: [u8; ID_BYTES],
    /// Whether the device flushes after each write.
    write_through: bool,
}

/// The result of a request.
struct Done {
    status: u8,
    /// The bytes served, without the status byte.
    served: Served,
}

impl Done {
    fn status(status: u8) -> Done {
        Done { status, served: Served::default() }
    }

    fn of(result: io::Result<()>, served: Served) -> Done {
        match result {
            Ok(()) => Done { status: STATUS_OK, served },
            // The transfer may have been partial, so no bytes count as written.
            Err(_) => Done { status: STATUS_IO_ERROR, served: Served { written: 0, ..served } },
        }
    }
}

impl Block {
    /// Returns the VM's disk number `index`. `bytes`, its size, is a multiple of [`SECTOR_BYTES`].
    pub fn new(file: File, bytes: u64, read_only: bool, index: usize) -> Block {
        let mut id = [0; ID_BYTES];
        for (to, byte) in id.iter_mut().zip(format!("unspin-vmm-{index}").bytes()) {
            *to = byte;
        }
        Block { file, bytes, read_only, id, write_through: false }
    }

    /// Returns the properties that the driver sees.
    pub fn description(&self) -> Description {
        let mut config = vec![0; CONFIG_BYTES];
        config[..8].copy_from_slice(&(self.bytes / SECTOR_BYTES).to_le_bytes());
        config[8..12].copy_from_slice(&SEGMENT_BYTES_MAX.to_le_bytes());
        config[12..16].copy_from_slice(&SEGMENTS_MAX.to_le_bytes());
        let mut features = F_COMMON | F_SIZE_MAX | F_SEG_MAX | F_FLUSH;
        if self.read_only {
            features |= F_READ_ONLY;
        }
        Description { device: DEVICE, class: CLASS, features, needs: &[], config, queues: 1 }
    }

    /// Serves a request: a header, data, and a byte for the status at the end.
    fn serve(&self, chain: &mut Chain) -> Served {
        let header = chain.readable.take::<16>();
        let (Some(header), Some(mut status)) = (header, chain.writable.take_last()) else {
            return Served::default();
        };
        let [kind, sector] = [0, 8].map(|at| {
            let bytes = std::array::from_fn(|index| header[at + index]);
            u64::from_le_bytes(bytes)
        });
        // The upper half of the first word is reserved.
        let Done { status: value, served } = self.transfer(kind as u32, sector, chain);
        status.put(&[value]);
        Served { written: served.written + 1, ..served }
    }

    fn transfer(&self, kind: u32, sector: u64, chain: &mut Chain) -> Done {
        let fd = self.file.as_raw_fd();
        let (readable, writable) =
            (std::mem::take(&mut chain.readable), std::mem::take(&mut chain.writable));
        match kind {
            IN => match self.place(sector, writable.bytes()) {
                Some((offset, moved)) => {
                    let served = Served { written: moved as u32, moved };
                    Done::of(writable.read_exact_at(fd, offset), served)
                }
                None => Done::status(STATUS_IO_ERROR),
            },
            OUT if self.read_only => Done::status(STATUS_IO_ERROR),
            OUT => match self.place(sector, readable.bytes()) {
                Some((offset, moved)) => {
                    let written = readable.write_all_at(fd, offset);
                    let stable = written.and_then(|()| self.flush_if(self.write_through));
                    let flushed = if self.write_through { FLUSH_COUNTS } else { 0 };
                    Done::of(stable, Served { written: 0, moved: moved + flushed })
                }
                None => Done::status(STATUS_IO_ERROR),
            },
            FLUSH => {
                let served = Served { written: 0, moved: FLUSH_COUNTS };
                Done::of(self.flush_if(!self.read_only), served)
            }
            GET_ID => {
                let mut writable = writable;
                let written = writable.put(&self.id) as u32;
                Done { status: STATUS_OK, served: Served { written, moved: 0 } }
            }
            _ => Done::status(STATUS_UNSUPPORTED),
        }
    }

    fn flush_if(&self, wanted: bool) -> io::Result<()> {
        if wanted { self.file.sync_data() } else { Ok(()) }
    }

    /// Returns offset and bytes of a request, if it lies within the disk and is not too large.
    fn place(&self, sector: u64, bytes: u64) -> Option<(u64, u64)> {
        let start = sector.checked_mul(SECTOR_BYTES)?;
        let end = start.checked_add(bytes)?;
        let whole = bytes % SECTOR_BYTES == 0 && (1..=REQUEST_BYTES_MAX).contains(&bytes);
        (whole && end <= self.bytes).then_some((start, bytes))
    }
}

impl Worker for Block {
    fn kind(&self) -> Kind {
        Kind::Block
    }

    fn start(&mut self, features: u64) -> io::Result<()> {
        self.write_through = features & F_FLUSH == 0;
        Ok(())
    }

    fn handle(&mut self, queue: usize, rings: &mut [Option<Ring>]) -> Left {
        match &mut rings[queue] {
            Some(ring) => drain(ring, |chain| self.serve(chain)),
            None => Left::Nothing,
        }
    }
}
