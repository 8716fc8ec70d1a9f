//! A driver's side of a queue, which tests write into memory.

use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use std::io;
use unspin_vmm::access::{DeviceMemory, Policy};
use unspin_vmm::memory::{Memory, Ram};
use unspin_vmm::virtio::QUEUE_SIZE;
use unspin_vmm::virtio::ring::Ring;
use unspin_vmm::virtio::tap::Link;
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress};

/// Distance of two queues in memory, and offsets of a queue's parts.
pub const QUEUE_BYTES: u64 = 0x4000;
pub const AVAILABLE: u64 = 0x1000;
pub const USED: u64 = 0x2000;
/// The address at which buffers begin.
pub const DATA: u64 = 0x1_0000;
/// Bytes of memory, few enough to compare all of them after each attack.
pub const MEMORY_BYTES: u64 = 256 << 10;

/// A descriptor's flags.
pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

/// Creates memory whose failure panics. In the product, it would end the VM.
pub fn ram(bytes: u64, policy: &Policy) -> Ram {
    Ram::new(bytes, policy, Box::new(|error: &io::Error| panic!("{error}"))).unwrap()
}

/// Memory with queues in it, and a count of interrupts.
pub struct Driver {
    pub memory: Memory,
    /// The memory that the rings' device has.
    pub devices: DeviceMemory,
    pub rings: Vec<Option<Ring>>,
    pub interrupts: Arc<AtomicU32>,
}

impl Driver {
    pub fn new(queues: u64, event_idx: bool) -> Driver {
        Driver::restricted(queues, event_idx, &Policy::Off)
    }

    /// Returns the driver of a device with this access policy.
    pub fn restricted(queues: u64, event_idx: bool, policy: &Policy) -> Driver {
        let Ram { guest: memory, devices, .. } = ram(MEMORY_BYTES, policy);
        let interrupts = Arc::new(AtomicU32::new(0));
        let ring = |index: u64| {
            let base = index * QUEUE_BYTES;
            let mut queue = Queue::new(QUEUE_SIZE).unwrap();
            queue.set_desc_table_address(Some(base as u32), None);
            queue.set_avail_ring_address(Some((base + AVAILABLE) as u32), None);
            queue.set_used_ring_address(Some((base + USED) as u32), None);
            queue.set_event_idx(event_idx);
            queue.set_ready(true);
            let interrupts = Arc::clone(&interrupts);
            let interrupt = Arc::new(move || {
                interrupts.fetch_add(1, Ordering::Relaxed);
            });
            Ring::new(queue, devices.clone(), interrupt)
        };
        let rings = (0..queues).map(ring).collect();
        Driver { memory, devices, rings, interrupts }
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(at)).unwrap();
    }

    pub fn read(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.memory.read_slice(&mut data, GuestAddress(at)).unwrap();
        data
    }

    pub fn describe(&self, table: u64, index: u64, at: u64, bytes: u32, flags: u16, next: u16) {
        let fields = [
            &at.to_le_bytes()[..],
            &bytes.to_le_bytes(),
            &flags.to_le_bytes(),
            &next.to_le_bytes(),
        ];
        self.write(table + 16 * index, &fields.concat());
    }

    /// Makes chains available, by their heads.
    pub fn offer(&self, queue: u64, index: u16, heads: &[u16]) {
        let base = queue * QUEUE_BYTES + AVAILABLE;
        for (head, slot) in heads.iter().zip(0..) {
            self.write(base + 4 + 2 * slot, &head.to_le_bytes());
        }
        self.write(base + 2, &index.to_le_bytes());
    }

    /// Returns the used ring's index, and head and length of its first entry.
    pub fn used(&self, queue: u64) -> (u16, u32, u32) {
        let bytes = self.read(queue * QUEUE_BYTES + USED, 12);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        (u16::from_le_bytes([bytes[2], bytes[3]]), word(4), word(8))
    }

    /// Offers a chain with a descriptor for each piece: address, bytes, and whether the device
    /// writes them.
    pub fn chain(&self, queue: u64, pieces: &[(u64, u32, bool)]) {
        let last = pieces.len() - 1;
        for (index, (at, bytes, writable)) in pieces.iter().enumerate() {
            let flags = if *writable { WRITE } else { 0 } | if index < last { NEXT } else { 0 };
            let next = index as u16 + 1;
            self.describe(queue * QUEUE_BYTES, index as u64, *at, *bytes, flags, next);
        }
        self.offer(queue, 1, &[0]);
    }
}

/// A network with one other end, in place of a tap interface.
pub struct Pipe {
    near: UnixDatagram,
    enabled: Arc<AtomicBool>,
}

impl Link for Pipe {
    fn fd(&self) -> RawFd {
        self.near.as_raw_fd()
    }

    fn set_offload(&self, _: u32) -> io::Result<()> {
        Ok(())
    }

    fn set_enabled(&self, enabled: bool) -> io::Result<()> {
        self.enabled.store(enabled, Ordering::Relaxed);
        Ok(())
    }
}

/// Returns a pipe and its other end, both nonblocking.
pub fn pipe() -> (Box<dyn Link>, UnixDatagram) {
    let (link, far, _) = watched_pipe();
    (link, far)
}

/// Returns a pipe that is full, and its other end. A device that writes to it waits for a reader.
pub fn full_pipe() -> (Box<dyn Link>, UnixDatagram) {
    let (near, far) = UnixDatagram::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    while near.send(&[0; 64]).is_ok() {}
    near.set_nonblocking(false).unwrap();
    far.set_nonblocking(true).unwrap();
    (Box::new(Pipe { near, enabled: Arc::new(AtomicBool::new(true)) }), far)
}

/// Returns a pipe, its other end, and whether the pipe is enabled.
pub fn watched_pipe() -> (Box<dyn Link>, UnixDatagram, Arc<AtomicBool>) {
    let (near, far) = UnixDatagram::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    let enabled = Arc::new(AtomicBool::new(true));
    (Box::new(Pipe { near, enabled: Arc::clone(&enabled) }), far, enabled)
}
