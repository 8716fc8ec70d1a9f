//! The rings of events that the vCPUs write, see bpf/sense/sense.h.

use std::sync::atomic::{Ordering, fence};

use super::page::{Plain, Shared};

const EVENTS: usize = 1024;
const FRAMES: usize = 8;

/// `struct event`: its number, its kind, and its data as words.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw {
    pub(super) seq: u64,
    pub(super) kind: u64,
    pub(super) words: [u64; 9 + FRAMES],
}

/// `struct ring`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Ring {
    head: u64,
    unused: [u64; 7],
    events: [Raw; EVENTS],
}

// SAFETY: integers only.
unsafe impl Plain for u64 {}
// SAFETY: integers only.
unsafe impl Plain for Raw {}
// SAFETY: integers only.
unsafe impl Plain for Ring {}

/// Reads new events from the rings.
pub(super) struct Rings {
    rings: Shared<Ring>,
    /// The number of the next event of each vCPU.
    next: Vec<u64>,
}

impl Rings {
    pub(super) fn new(rings: Shared<Ring>) -> Rings {
        let next = vec![0; rings.count()];
        Rings { rings, next }
    }

    /// Calls `each` with each new event and its vCPU, in order on each vCPU. Returns the number of
    /// events that were overwritten before they could be read.
    pub(super) fn take(&mut self, mut each: impl FnMut(u16, &Raw)) -> u64 {
        let mut lost = 0;
        for vcpu in 0..self.next.len() {
            let head: u64 = self.rings.read(vcpu, 0);
            let first = head.saturating_sub(EVENTS as u64).max(self.next[vcpu]);
            lost += first - self.next[vcpu];
            self.next[vcpu] = first;
            while self.next[vcpu] < head {
                let number = self.next[vcpu];
                match self.event(vcpu, number) {
                    Place::Event(raw) => each(vcpu as u16, &raw),
                    Place::Overwritten => lost += 1,
                    Place::Unfinished => break,
                }
                self.next[vcpu] += 1;
            }
        }
        lost
    }

    fn event(&self, vcpu: usize, number: u64) -> Place {
        let at = std::mem::offset_of!(Ring, events)
            + (number % EVENTS as u64) as usize * size_of::<Raw>();
        let seq: u64 = self.rings.read(vcpu, at);
        if seq <= number {
            return Place::Unfinished;
        }
        fence(Ordering::Acquire);
        let raw: Raw = self.rings.read(vcpu, at);
        fence(Ordering::Acquire);
        let after: u64 = self.rings.read(vcpu, at);
        if seq == number + 1 && after == seq { Place::Event(raw) } else { Place::Overwritten }
    }
}

enum Place {
    Event(Raw),
    Overwritten,
    /// The writer has not finished the event.
    Unfinished,
}
