//! A thread's access to guest memory: the thread takes pages before it touches them, and then gives
//! them back.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;

use vm_memory::bitmap::BS;
use vm_memory::guest_memory::GuestMemorySliceIterator;
use vm_memory::{GuestAddress, GuestMemory, GuestMemoryBackend, GuestMemoryError, Permissions};

use super::counters::add;
use super::table::{NoAccess, Table, Taken};
use crate::memory::Memory;

/// The most pages that a chain may name, 16 MiB in total; a longer chain is refused. Unrestricted
/// memory has only the device's own limit.
pub const CHAIN_PAGES_MAX: u64 = 4096;

/// A descriptor's guest-physical address and its number of bytes.
pub type Piece = (GuestAddress, usize);

/// Access of one thread. The pages of a ring are in use until [`Window::end`], and those of a chain
/// until [`Window::release`].
#[derive(Debug)]
pub struct Window {
    memory: Memory,
    table: Option<Arc<Table>>,
    ring: Vec<Range<u32>>,
    /// The ring's parts as guest-physical ranges. Most accesses go there and need no look at pages.
    ring_bytes: Vec<Range<u64>>,
    chain: RefCell<Vec<Range<u32>>>,
    /// The pages that a chain asks for; a field only to reuse its allocation.
    wanted: RefCell<Vec<Range<u32>>>,
    chain_pages: Cell<u64>,
    /// Whether the system failed to open a page, so that the VM ends.
    failed: Cell<bool>,
    // The window counts locally, so that threads do not share a cache line for each chain.
    chains: Cell<u64>,
    pages: Cell<u64>,
    hits: Cell<u64>,
}

impl Window {
    /// Returns a window that holds no pages.
    pub(super) fn new(memory: Memory, table: Option<Arc<Table>>) -> Window {
        Window {
            memory,
            table,
            ring: Vec::new(),
            ring_bytes: Vec::new(),
            chain: RefCell::default(),
            wanted: RefCell::default(),
            chain_pages: Cell::new(0),
            failed: Cell::new(false),
            chains: Cell::new(0),
            pages: Cell::new(0),
            hits: Cell::new(0),
        }
    }

    /// Returns the mapping. The caller may touch only pages in use.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Takes the pages of a ring's parts. Returns `false` if they are not accessible.
    #[must_use]
    pub fn hold_ring(&mut self, parts: &[Piece]) -> bool {
        let Some(table) = &self.table else { return true };
        let wanted = self.wanted.get_mut();
        if !locate(table, parts, wanted) {
            return self.refuse(table);
        }
        match table.take(wanted, &[], &mut self.ring) {
            Ok(taken) => {
                let bytes = parts.iter().map(|(at, bytes)| at.0..at.0 + *bytes as u64);
                self.ring_bytes.extend(bytes);
                self.count(taken)
            }
            Err(error) => self.no_access(table, &error),
        }
    }

    /// Returns whether the system failed to open a page. From then on, no chain may be given back.
    pub fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Takes the pages of a chain's descriptors, by as many calls as the policy says. Returns
    /// `false` if a page is inaccessible, or if the chain has more than [`CHAIN_PAGES_MAX`] pages.
    #[must_use]
    pub fn hold(&self, pieces: &[Piece]) -> bool {
        let Some(table) = &self.table else { return true };
        let mut wanted = self.wanted.borrow_mut();
        if !locate(table, pieces, &mut wanted) {
            return self.refuse(table);
        }
        let pages: u64 = wanted.iter().map(|pages| u64::from(pages.end - pages.start)).sum();
        self.chain_pages.set(self.chain_pages.get() + pages);
        if self.chain_pages.get() > CHAIN_PAGES_MAX {
            return self.refuse(table);
        }
        let mut chain = self.chain.borrow_mut();
        if table.take_hits(&wanted, &mut chain) {
            return self.count(Taken { pages, hits: pages });
        }
        let calls = if table.policy().is_by_chain() { wanted.len().max(1) } else { 1 };
        for wanted in wanted.chunks(calls) {
            match table.take(wanted, &self.ring, &mut chain) {
                Ok(taken) => self.count(taken),
                Err(error) => return self.no_access(table, &error),
            };
        }
        true
    }

    /// Ends the use of a chain's pages.
    pub fn release(&self) {
        if let Some(table) = &self.table {
            let mut chain = self.chain.borrow_mut();
            table.release(&chain);
            chain.clear();
            self.chain_pages.set(0);
        }
    }

    /// Ends all uses. The window can serve again without another allocation.
    pub fn end(&mut self) {
        self.release();
        if let Some(table) = &self.table {
            table.release_and_keep(&self.ring);
            self.ring.clear();
            self.ring_bytes.clear();
            let counters = &table.counters;
            add(&counters.chains, self.chains.take());
            add(&counters.pages_asked, self.pages.take());
            add(&counters.hits, self.hits.take());
        }
    }

    /// Counts a chain that the device served.
    pub fn count_chain(&self) {
        self.chains.set(self.chains.get() + 1);
    }

    fn count(&self, taken: Taken) -> bool {
        self.pages.set(self.pages.get() + taken.pages);
        self.hits.set(self.hits.get() + taken.hits);
        true
    }

    fn no_access(&self, table: &Table, error: &NoAccess) -> bool {
        if let NoAccess::Failed(_) = error {
            self.failed.set(true);
        }
        self.refuse(table)
    }

    fn refuse(&self, table: &Table) -> bool {
        add(&table.counters.refused, 1);
        false
    }

    /// Takes the pages of rings and indirect tables, unless this window uses them already.
    fn reach(&self, piece: Piece) -> bool {
        let Some(table) = &self.table else { return true };
        let (start, bytes) = (piece.0.0, piece.1 as u64);
        let in_ring = |part: &Range<u64>| part.contains(&start) && bytes <= part.end - start;
        if bytes == 0 || self.ring_bytes.iter().any(in_ring) {
            return true;
        }
        // For a piece that exceeds the mapping, the mapping would return its front.
        let Some(pages) = table.locate(start, bytes) else { return false };
        let holds = |held: &Range<u32>| held.start <= pages.start && pages.end <= held.end;
        let held = self.chain.borrow().last().is_some_and(holds);
        held || self.hold(&[piece])
    }
}

/// Replaces `pages` with the pages of `pieces`. Returns `false` if a piece is not memory, or lies
/// in two regions.
fn locate(table: &Table, pieces: &[Piece], pages: &mut Vec<Range<u32>>) -> bool {
    pages.clear();
    pieces.iter().filter(|(_, bytes)| *bytes > 0).all(|(at, bytes)| {
        let found = table.locate(at.0, *bytes as u64);
        found.map(|found| pages.push(found)).is_some()
    })
}

impl Drop for Window {
    fn drop(&mut self) {
        self.end();
    }
}

impl GuestMemory for Window {
    type PhysicalMemory = Memory;
    type Bitmap = ();

    fn check_range(&self, at: GuestAddress, bytes: usize, _: Permissions) -> bool {
        GuestMemoryBackend::check_range(&self.memory, at, bytes)
    }

    fn get_slices<'a>(
        &'a self,
        at: GuestAddress,
        bytes: usize,
        _: Permissions,
    ) -> Result<impl GuestMemorySliceIterator<'a, BS<'a, ()>>, GuestMemoryError> {
        if self.reach((at, bytes)) {
            Ok(GuestMemoryBackend::get_slices(&self.memory, at, bytes))
        } else {
            Err(GuestMemoryError::InvalidGuestAddress(at))
        }
    }
}
