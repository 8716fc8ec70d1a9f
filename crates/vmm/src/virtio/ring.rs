//! A queue that a driver enabled, and the chains in it.

use std::sync::Arc;

use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{GuestAddress, GuestMemoryBackend};

use super::QUEUE_SIZE;
use super::buffers::Buffers;
use crate::memory::Memory;

/// The most pieces of a chain; a chain with more is malformed. Linux uses at most one for each
/// descriptor of the queue.
const PIECES_MAX: usize = QUEUE_SIZE as usize;

/// Bytes after which commands have their turn.
pub const DRAIN_BYTES: u64 = 16 << 20;

/// Interrupts the driver of a queue.
pub type Interrupt = Arc<dyn Fn() + Send + Sync>;

/// A queue with the memory it is in.
pub struct Ring {
    queue: Queue,
    memory: Memory,
    interrupt: Interrupt,
    /// The driver broke the ring's rules: it is ignored until a reset.
    broken: bool,
}

/// What a chain of descriptors names.
#[derive(Debug, Default)]
pub struct Chain<'m> {
    /// The first descriptor.
    pub head: u16,
    /// What the device reads.
    pub readable: Buffers<'m>,
    /// What the device writes.
    pub writable: Buffers<'m>,
    /// Whether it breaks the rules; it is to be returned without a byte written.
    pub malformed: bool,
}

impl Ring {
    /// A ring, if the queue lies in memory.
    pub fn new(queue: Queue, memory: Memory, interrupt: Interrupt) -> Option<Ring> {
        queue.is_valid(&memory).then_some(Ring { queue, memory, interrupt, broken: false })
    }

    /// The memory, to borrow chains from while the ring is used.
    pub fn memory(&self) -> Memory {
        self.memory.clone()
    }

    /// Takes the next chain; `false` if there is none.
    pub fn pop<'m>(&mut self, memory: &'m Memory, chain: &mut Chain<'m>) -> bool {
        if self.broken {
            return false;
        }
        let next = match self.queue.iter(memory) {
            Ok(mut available) => available.next(),
            Err(_) => {
                self.broken = true;
                return false;
            }
        };
        let Some(descriptors) = next else { return false };
        chain.head = descriptors.head_index();
        chain.readable.clear();
        chain.writable.clear();
        chain.malformed = false;
        let (mut last_has_next, mut count) = (true, 0);
        for descriptor in descriptors {
            count += 1;
            last_has_next = descriptor.has_next();
            let writable = descriptor.is_write_only();
            // What is read comes first.
            chain.malformed |= !writable && chain.writable.pieces() > 0;
            let target = if writable { &mut chain.writable } else { &mut chain.readable };
            let (at, bytes) = (descriptor.addr(), descriptor.len() as usize);
            chain.malformed |= !add(memory, at, bytes, target);
            // The iterator would follow an indirect table of 65,535 entries.
            if chain.malformed || count > PIECES_MAX {
                break;
            }
        }
        // The iterator ends without a word where a chain has a loop or leaves its table.
        chain.malformed |= last_has_next;
        true
    }

    /// Gives a chain back, with the number of bytes written to it.
    pub fn push(&mut self, head: u16, written: u32) {
        self.broken |= self.queue.add_used(&self.memory, head, written).is_err();
    }

    /// Puts the last popped chain back.
    pub fn unpop(&mut self) {
        self.queue.go_to_previous_position();
    }

    /// Asks the driver for notifications. `true` if there are chains already.
    pub fn rearm(&mut self) -> bool {
        let more = self.queue.enable_notification(&self.memory);
        !self.broken && more.unwrap_or(false)
    }

    /// Asks the driver to spare notifications.
    pub fn disarm(&mut self) {
        let _ = self.queue.disable_notification(&self.memory);
    }

    /// Interrupts the driver, if it wants to hear of chains that were given back.
    pub fn notify(&mut self) {
        if self.queue.needs_notification(&self.memory).unwrap_or(false) {
            (self.interrupt)();
        }
    }
}

/// Adds guest memory, if it is there and not too much of it.
fn add<'m>(memory: &'m Memory, at: GuestAddress, bytes: usize, to: &mut Buffers<'m>) -> bool {
    if bytes == 0 {
        return true;
    }
    for piece in GuestMemoryBackend::get_slices(memory, at, bytes) {
        match piece {
            Ok(piece) if to.pieces() < PIECES_MAX => to.push(piece),
            _ => return false,
        }
    }
    true
}

/// What became of a chain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// Bytes written to it, as the used ring reports them.
    pub written: u32,
    /// Bytes moved between it and the device's file, either way.
    pub moved: u64,
}

/// Handles the chains of a ring, at most as many as the queue has descriptors, and not many more
/// bytes than [`DRAIN_BYTES`]: a driver that resets the device waits for that long.
pub fn drain(ring: &mut Ring, mut one: impl FnMut(&mut Chain) -> Served) -> super::Left {
    let memory = ring.memory();
    let mut chain = Chain::default();
    let (mut left, mut moved) = (super::Left::Nothing, 0);
    ring.disarm();
    for _ in 0..QUEUE_SIZE {
        if moved >= DRAIN_BYTES || !ring.pop(&memory, &mut chain) {
            break;
        }
        let served = if chain.malformed { Served::default() } else { one(&mut chain) };
        moved += served.moved;
        ring.push(chain.head, served.written);
    }
    if ring.rearm() {
        left = super::Left::More;
    }
    ring.notify();
    left
}
