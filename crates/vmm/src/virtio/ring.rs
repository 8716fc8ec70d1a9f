//! A queue that a driver enabled, and the chains in it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

use super::QUEUE_SIZE;
use super::buffers::Buffers;
use crate::access::DeviceMemory;
use crate::access::window::{Piece, Window};
use crate::memory::Memory;

/// The most pieces of a chain; a chain with more is malformed. Linux uses at most one for each
/// descriptor of the queue.
const PIECES_MAX: usize = QUEUE_SIZE as usize;

/// Bytes after which commands have their turn.
pub const DRAIN_BYTES: u64 = 16 << 20;

/// Flag of the available ring: the driver wants no interrupts.
const NO_INTERRUPT: u16 = 1;

/// Interrupts the driver of a queue.
pub type Interrupt = Arc<dyn Fn() + Send + Sync>;

/// A queue with the memory it is in.
pub struct Ring {
    queue: Queue,
    memory: DeviceMemory,
    interrupt: Interrupt,
    /// Of the last use: a new one would allocate.
    window: Option<Window>,
    /// Chains were given back since the last look at whether the driver wants to hear of them.
    pushed: bool,
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
    /// All descriptors, and which of them the device writes.
    pieces: Vec<Piece>,
    writes: Vec<bool>,
}

impl Ring {
    /// A ring, if the queue lies in memory.
    pub fn new(
        queue: Queue,
        memory: impl Into<DeviceMemory>,
        interrupt: Interrupt,
    ) -> Option<Ring> {
        let memory = memory.into();
        let valid = queue.is_valid(memory.memory());
        valid.then_some(Ring {
            queue,
            memory,
            interrupt,
            window: None,
            pushed: false,
            broken: false,
        })
    }

    /// Access to the ring and to chains, while the ring is used; [`Ring::end`] ends it.
    pub fn window(&mut self) -> Window {
        let mut window = self.window.take().unwrap_or_else(|| self.memory.window());
        let size = usize::from(self.queue.size());
        // Descriptors, and two rings with flags, index and event (virtio 1.2, 2.7).
        let parts = [
            (self.queue.desc_table(), 16 * size),
            (self.queue.avail_ring(), 6 + 2 * size),
            (self.queue.used_ring(), 6 + 8 * size),
        ];
        let parts = parts.map(|(at, bytes)| (GuestAddress(at), bytes));
        self.broken |= !window.hold_ring(&parts);
        window
    }

    /// Ends a use of the ring.
    pub fn end(&mut self, mut window: Window) {
        window.end();
        self.window = Some(window);
    }

    /// Takes the next chain; `false` if there is none.
    pub fn pop<'m>(&mut self, window: &'m Window, chain: &mut Chain<'m>) -> bool {
        if self.broken {
            return false;
        }
        let next = match self.queue.iter(window) {
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
        chain.pieces.clear();
        chain.writes.clear();
        chain.malformed = false;
        let (mut last_has_next, mut count, mut written) = (true, 0, false);
        for descriptor in descriptors {
            count += 1;
            last_has_next = descriptor.has_next();
            let writable = descriptor.is_write_only();
            // What is read comes first.
            chain.malformed |= !writable && written;
            written |= writable && descriptor.len() > 0;
            chain.pieces.push((descriptor.addr(), descriptor.len() as usize));
            chain.writes.push(writable);
            // The iterator would follow an indirect table of 65,535 entries.
            if chain.malformed || count == PIECES_MAX {
                break;
            }
        }
        // The iterator ends without a word where a chain has a loop or leaves its table.
        chain.malformed |= last_has_next;
        chain.malformed = chain.malformed || !chain.reach(window);
        self.broken |= window.has_failed();
        !self.broken
    }

    /// Gives a chain back, with the number of bytes written to it.
    pub fn push(&mut self, window: &Window, head: u16, written: u32) {
        window.release();
        window.count_chain();
        self.pushed = true;
        self.broken |= self.queue.add_used(window, head, written).is_err();
    }

    /// Puts the last popped chain back.
    pub fn unpop(&mut self, window: &Window) {
        window.release();
        self.queue.go_to_previous_position();
    }

    /// Asks the driver for notifications. `true` if there are chains already.
    pub fn rearm(&mut self, window: &Window) -> bool {
        if self.broken {
            return false;
        }
        let more = self.queue.enable_notification(window);
        !self.broken && more.unwrap_or(false)
    }

    /// Asks the driver to spare notifications.
    pub fn disarm(&mut self, window: &Window) {
        let _ = self.queue.disable_notification(window);
    }

    /// Interrupts the driver, if it wants to hear of chains that were given back.
    pub fn notify(&mut self, window: &Window) {
        let pushed = std::mem::take(&mut self.pushed);
        let wanted = pushed && self.queue.needs_notification(window).unwrap_or(false);
        if wanted && !self.is_spared(window) {
            (self.interrupt)();
        }
    }

    /// Whether the driver has set the flag that spares it interrupts, without VIRTIO_F_EVENT_IDX
    /// (virtio 1.2, 2.7.7). The virtio-queue crate does not read it.
    fn is_spared(&self, window: &Window) -> bool {
        let flags = || window.load::<u16>(GuestAddress(self.queue.avail_ring()), Ordering::Relaxed);
        let is_set = |flags: u16| u16::from_le(flags) & NO_INTERRUPT != 0;
        !self.queue.event_idx_enabled() && flags().is_ok_and(is_set)
    }
}

impl<'m> Chain<'m> {
    /// Gets access to all descriptors, and sorts them. `false`: not all are memory, or there is no
    /// access.
    fn reach(&mut self, window: &'m Window) -> bool {
        let memory = window.memory();
        window.hold(&self.pieces)
            && self.pieces.iter().zip(&self.writes).all(|((at, bytes), writable)| {
                let to = if *writable { &mut self.writable } else { &mut self.readable };
                add(memory, *at, *bytes, to)
            })
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
    /// Bytes moved between it and the device's file, either way; a flush counts as some.
    pub moved: u64,
}

/// Handles the chains of a ring, at most as many as the queue has descriptors, and not many more
/// bytes than [`DRAIN_BYTES`]: a driver that resets the device waits for that long.
pub fn drain(ring: &mut Ring, mut one: impl FnMut(&mut Chain) -> Served) -> super::Left {
    let window = ring.window();
    let mut chain = Chain::default();
    let (mut left, mut moved) = (super::Left::Nothing, 0);
    ring.disarm(&window);
    for _ in 0..QUEUE_SIZE {
        if moved >= DRAIN_BYTES || !ring.pop(&window, &mut chain) {
            break;
        }
        let served = if chain.malformed { Served::default() } else { one(&mut chain) };
        moved += served.moved;
        ring.push(&window, chain.head, served.written);
    }
    if ring.rearm(&window) {
        left = super::Left::More;
    }
    ring.notify(&window);
    drop(chain);
    ring.end(window);
    left
}
