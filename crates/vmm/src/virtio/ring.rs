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

/// The most pieces of a chain; a chain with more is malformed. Linux uses at most one piece for
/// each descriptor of the queue.
const PIECES_MAX: usize = QUEUE_SIZE as usize;

/// Bytes that a worker moves before it checks for commands.
pub const DRAIN_BYTES: u64 = 16 << 20;

/// Flag of the available ring: the driver wants no interrupts.
const NO_INTERRUPT: u16 = 1;

/// A function that interrupts the driver of a queue.
pub type Interrupt = Arc<dyn Fn() + Send + Sync>;

/// A queue with the memory that contains it.
pub struct Ring {
    queue: Queue,
    memory: DeviceMemory,
    interrupt: Interrupt,
    /// The window of the last use. A new one would allocate.
    window: Option<Window>,
    /// Whether chains were given back since the device last checked if the driver wants an
    /// interrupt.
    pushed: bool,
    /// Whether the driver broke the ring's rules. The device then ignores the ring until a reset.
    broken: bool,
}

/// A descriptor chain and the memory that it names.
#[derive(Debug, Default)]
pub struct Chain<'m> {
    /// The index of the first descriptor.
    pub head: u16,
    /// The buffers that the device reads.
    pub readable: Buffers<'m>,
    /// The buffers that the device writes.
    pub writable: Buffers<'m>,
    /// Whether the chain breaks the rules. The device returns such a chain without writing a byte.
    pub malformed: bool,
    /// All descriptors, and for each one whether the device writes it.
    pieces: Vec<Piece>,
    writes: Vec<bool>,
}

impl Ring {
    /// Returns a ring, if the queue lies in memory.
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

    /// Opens access to the ring and to chains, until [`Ring::end`].
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

    /// Ends a use of the ring, which `window` began.
    pub fn end(&mut self, mut window: Window) {
        window.end();
        self.window = Some(window);
    }

    /// Takes the next chain. Returns `false` if there is none.
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
            // Readable descriptors must come first.
            chain.malformed |= !writable && written;
            written |= writable && descriptor.len() > 0;
            chain.pieces.push((descriptor.addr(), descriptor.len() as usize));
            chain.writes.push(writable);
            // The iterator would follow an indirect table of 65,535 entries.
            if chain.malformed || count == PIECES_MAX {
                break;
            }
        }
        // If a chain has a loop or leaves its table, the iterator ends without an error.
        chain.malformed |= last_has_next;
        chain.malformed = chain.malformed || !chain.reach(window);
        self.broken |= window.has_failed();
        !self.broken
    }

    /// Gives a chain back, with the number of bytes that the device wrote to it.
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

    /// Asks the driver for notifications. Returns `true` if chains are available already.
    pub fn rearm(&mut self, window: &Window) -> bool {
        if self.broken {
            return false;
        }
        let more = self.queue.enable_notification(window);
        !self.broken && more.unwrap_or(false)
    }

    /// Asks the driver to omit notifications.
    pub fn disarm(&mut self, window: &Window) {
        let _ = self.queue.disable_notification(window);
    }

    /// Interrupts the driver, if it wants an interrupt for the chains that were given back.
    pub fn notify(&mut self, window: &Window) {
        let pushed = std::mem::take(&mut self.pushed);
        let wanted = pushed && self.queue.needs_notification(window).unwrap_or(false);
        if wanted && !self.is_spared(window) {
            (self.interrupt)();
        }
    }

    /// Returns whether the driver has set the flag that suppresses interrupts without
    /// VIRTIO_F_EVENT_IDX (virtio 1.2, 2.7.7). The virtio-queue crate does not read it.
    fn is_spared(&self, window: &Window) -> bool {
        let flags = || window.load::<u16>(GuestAddress(self.queue.avail_ring()), Ordering::Relaxed);
        let is_set = |flags: u16| u16::from_le(flags) & NO_INTERRUPT != 0;
        !self.queue.event_idx_enabled() && flags().is_ok_and(is_set)
    }
}

impl<'m> Chain<'m> {
    /// Takes all descriptors into use, and sorts them. Returns `false` if not all are memory, or if
    /// they are not accessible.
    fn reach(&mut self, window: &'m Window) -> bool {
        let memory = window.memory();
        window.hold(&self.pieces)
            && self.pieces.iter().zip(&self.writes).all(|((at, bytes), writable)| {
                let to = if *writable { &mut self.writable } else { &mut self.readable };
                add(memory, *at, *bytes, to)
            })
    }
}

/// Adds guest memory to `to`. Returns `false` if it is not memory, or has too many pieces.
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

/// The result of serving a chain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// Bytes written to the chain, as the used ring reports them.
    pub written: u32,
    /// Bytes moved between the chain and the device's file, in either direction; a flush counts as
    /// some.
    pub moved: u64,
}

/// Handles the chains of a ring: at most as many as the queue has descriptors, and not many more
/// bytes than [`DRAIN_BYTES`]. A driver that resets the device waits for that long.
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
