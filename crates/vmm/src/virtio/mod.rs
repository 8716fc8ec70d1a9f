//! virtio 1.2 devices: models that know memory and queues only, and the threads that run them.

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

/// Feature bits of all devices (virtio 1.2, 6): indirect descriptors, event indices, the standard
/// itself, and that the device reaches memory as the platform says, which a confidential guest
/// insists on.
pub const F_INDIRECT_DESC: u64 = 1 << 28;
/// `VIRTIO_F_EVENT_IDX`.
pub const F_EVENT_IDX: u64 = 1 << 29;
/// `VIRTIO_F_VERSION_1`.
pub const F_VERSION_1: u64 = 1 << 32;
/// `VIRTIO_F_ACCESS_PLATFORM`.
pub const F_ACCESS_PLATFORM: u64 = 1 << 33;
/// What every device offers.
pub const F_COMMON: u64 = F_INDIRECT_DESC | F_EVENT_IDX | F_VERSION_1 | F_ACCESS_PLATFORM;

/// Descriptors of a queue.
pub const QUEUE_SIZE: u16 = 256;

/// A device as its driver sees it before it is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The device's type (virtio 1.2, 5).
    pub device: u16,
    /// PCI's class, subclass and programming interface, in 24 bits.
    pub class: u32,
    /// Features that it offers, [`F_COMMON`] among them.
    pub features: u64,
    /// Features that a driver may accept only with another one, which follows.
    pub needs: &'static [(u64, u64)],
    /// Its configuration, which the driver can only read.
    pub config: Vec<u8>,
    /// The number of its queues, each of [`QUEUE_SIZE`].
    pub queues: u16,
}

/// What is left after a call of a [`Worker`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nothing: wait for the next event.
    Nothing,
    /// More of the same: call again, after commands of the VM had their turn.
    More,
}

/// A part of a device that has a thread and some of the device's queues.
pub trait Worker: Send {
    /// The thread's name and filter of system calls.
    fn kind(&self) -> Kind;

    /// The driver is ready, and has accepted these features.
    fn start(&mut self, features: u64) -> io::Result<()> {
        let _ = features;
        Ok(())
    }

    /// The driver reset the device.
    fn stop(&mut self) {}

    /// Handles one queue, an index of `rings`. A queue that the driver did not enable is `None`.
    fn handle(&mut self, queue: usize, rings: &mut [Option<Ring>]) -> Left;

    /// The file whose readiness calls [`Worker::ready`], once for each change.
    fn backend(&self) -> Option<RawFd> {
        None
    }

    /// The backend became readable.
    fn ready(&mut self, rings: &mut [Option<Ring>]) -> Left {
        let _ = rings;
        Left::Nothing
    }
}
