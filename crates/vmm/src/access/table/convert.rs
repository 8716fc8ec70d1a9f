//! Conversions: the guest makes pages private, or shares them again.
//!
//! A private page takes no user. Those that use it when it becomes private go on, because their I/O
//! is in flight, and the conversion waits for them.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{Table, Word, add, lock};

/// The most pages that a conversion handles with the locks held. It gives them up in between, so
/// that devices do not wait for all of a large conversion.
const PART_PAGES: u32 = 4096;

impl Table {
    /// Makes pages private. Once this returns, no thread can reach them, and no I/O is in flight on
    /// them. If the system cannot close a page, the VM has failed.
    pub fn make_private(&self, pages: Range<u32>) {
        for part in parts(pages) {
            self.make_part_private(part);
        }
    }

    /// Makes pages shared, so that they can be granted.
    pub fn make_shared(&self, pages: Range<u32>) {
        for part in parts(pages) {
            // A conversion of the same page to private ends first.
            let _one = lock(&self.revoking);
            let _changes = lock(&self.changes);
            for page in part {
                self.mark(page, Word::made_shared);
            }
        }
    }

    fn make_part_private(&self, pages: Range<u32>) {
        let _one = lock(&self.revoking);
        let mut changes = lock(&self.changes);
        let open: Vec<u32> =
            pages.filter(|page| self.mark(*page, Word::made_private).is_open()).collect();
        add(&self.counters.converted_open, open.len() as u64);
        let in_use = || open.iter().any(|page| self.state(*page).users() > 0);
        if in_use() {
            let start = Instant::now();
            while in_use() {
                changes = self.wait(changes);
            }
            add(&self.counters.convert_waits, 1);
            add(&self.counters.convert_wait_ns, start.elapsed().as_nanos() as u64);
        }
        // The policy `request` may have closed some of them at the end of their use.
        let open: Vec<u32> = open.into_iter().filter(|page| self.state(*page).is_open()).collect();
        open.chunk_by(|a, b| a + 1 == *b).for_each(|run| self.close(run));
        drop(changes);
        self.changed.notify_all();
    }

    /// Changes a page's state, and returns the one from before. The caller holds the lock
    /// `changes`. Other threads may count their uses of the page at the same time.
    fn mark(&self, page: u32, to: fn(Word) -> Word) -> Word {
        let word = &self.words[page as usize];
        let marked =
            word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(to(Word(old)).0));
        // The closure refuses no state.
        Word(marked.unwrap_or_else(|old| old))
    }
}

/// Splits pages into parts of at most [`PART_PAGES`].
fn parts(pages: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    let end = pages.end;
    pages
        .step_by(PART_PAGES as usize)
        .map(move |start| start..end.min(start.saturating_add(PART_PAGES)))
}
