//! virtio 1.2 devices: models that depend only on memory and queues, and the threads that run them.

pub mod block;
pub mod buffers;
pub mod console;
pub mod net;
pub mod ring;
pub mod tap;
pub mod thread;

use std::io;
use std::os::fd::RawFd;

use ring::Ring;

use crate::sandbox::Kind;

/// `VIRTIO_F_INDIRECT_DESC`, the first of the feature bits of all devices (virtio 1.2, 6).
pub const F_INDIRECT_DESC: u64 = 1 << 28;
/// `VIRTIO_F_EVENT_IDX`.
pub const F_EVENT_IDX: u64 = 1 << 29;
/// `VIRTIO_F_VERSION_1`.
pub const F_VERSION_1: u64 = 1 << 32;
/// `VIRTIO_F_ACCESS_PLATFORM`: the device accesses memory as the platform defines, which a
/// confidential guest requires.
pub const F_ACCESS_PLATFORM: u64 = 1 << 33;
/// The features that every device offers.
pub const F_COMMON: u64 = F_INDIRECT_DESC | F_EVENT_IDX | F_VERSION_1 | F_ACCESS_PLATFORM;

/// Number of descriptors of a queue.
pub const QUEUE_SIZE: u16 = 256;

/// A device as its driver sees it before the driver starts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The device's type (virtio 1.2, 5).
    pub device: u16,
    /// PCI's class, subclass and programming interface, in 24 bits.
    pub class: u32,
    /// Features that the device offers, [`F_COMMON`] included.
    pub features: u64,
    /// Pairs of a feature and another one, without which a driver may not accept the first.
    pub needs: &'static [(u64, u64)],
    /// The device's configuration, which the driver can only read.
    pub config: Vec<u8>,
    /// The number of the device's queues, each of [`QUEUE_SIZE`].
    pub queues: u16,
}

/// The work that remains after a call of a [`Worker`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// No work: wait for the next event.
    Nothing,
    /// More work of the same kind: call again, after commands of the VM have been handled.
    More,
}

/// A part of a device that has a thread and serves some of the device's queues.
pub trait Worker: Send {
    /// Returns the kind of the thread, which determines its name and its system call filter.
    fn kind(&self) -> Kind;

    /// Starts work for a driver that is ready and has accepted these features.
    fn start(&mut self, features: u64) -> io::Result<()> {
        let _ = features;
        Ok(())
    }

    /// Stops work, because the driver reset the device.
    fn stop(&mut self) {}

    /// Handles one queue, by its index in `rings`. A queue that the driver did not enable is
    /// `None`.
    fn handle(&mut self, queue: usize, rings: &mut [Option<Ring>]) -> Left;

    /// Returns the file whose readiness makes the thread call [`Worker::ready`], once for each
    /// change.
    fn backend(&self) -> Option<RawFd> {
        None
    }

    /// Handles a backend that has become readable.
    fn ready(&mut self, rings: &mut [Option<Ring>]) -> Left {
        let _ = rings;
        Left::Nothing
    }
}
