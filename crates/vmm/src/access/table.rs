//! The states of all pages, and the locking rules for changing them.
//!
//! A hit changes one word without a lock. Every path that opens or closes pages holds the lock
//! `changes`, so the states agree with the gate whenever the lock is free. Only one page is closing
//! at a time. Its users wait for nothing but that lock, so their uses end, and then the page's
//! revocation ends. No thread waits for a private page: it is refused at once.

mod convert;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use unspin_cvm::PAGE_BYTES;

use super::Policy;
use super::counters::{Counters, add};
use super::gate::Gate;
use super::word::Word;
use crate::machine::lock;

/// A function that the table calls with the reason if it could not open or close a page: the VM
/// must not go on. Drivers that ignore the length of a returned chain cannot tell an unserved chain
/// from a served one.
pub type OnFailure = Box<dyn Fn(&io::Error) + Send + Sync>;

/// A reason why pages were not taken.
#[derive(Debug)]
pub enum NoAccess {
    /// The guest made one of them private.
    Private,
    /// The system could not open one of them, so the VM ends.
    Failed(io::Error),
}

/// The pages of a VM, numbered from 0 in the order of their addresses.
pub struct Table {
    words: Box<[AtomicU32]>,
    /// Guest-physical ranges. Their pages are numbered consecutively across the ranges.
    regions: Vec<Range<u64>>,
    policy: Policy,
    gate: Box<dyn Gate>,
    on_failure: OnFailure,
    /// The number of open pages, written under `changes`.
    open_pages: AtomicU32,
    /// Counters of the table's work.
    pub counters: Counters,
    changes: Mutex<()>,
    changed: Condvar,
    /// The lock that a revocation holds from its beginning to its end.
    revoking: Mutex<()>,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("policy", &self.policy).field("gate", &self.gate).finish()
    }
}

/// Statistics of one take: how many of its pages were open already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Pages that the caller asked for.
    pub pages: u64,
    /// Pages among them that were open.
    pub hits: u64,
}

impl Table {
    /// Returns a table of guest-physical ranges of whole pages, all of which are closed.
    pub fn new(
        regions: Vec<Range<u64>>,
        policy: Policy,
        gate: Box<dyn Gate>,
        on_failure: OnFailure,
    ) -> Table {
        let bytes: u64 = regions.iter().map(|region| region.end - region.start).sum();
        let words = (0..bytes / PAGE_BYTES).map(|_| AtomicU32::new(Word::CLOSED.0)).collect();
        Table {
            words,
            regions,
            policy,
            gate,
            on_failure,
            open_pages: AtomicU32::new(0),
            counters: Counters::default(),
            changes: Mutex::default(),
            changed: Condvar::new(),
            revoking: Mutex::default(),
        }
    }

    /// Returns the policy, which says how long grants last.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u32 {
        self.words.len() as u32
    }

    /// Returns a page's current state.
    pub fn state(&self, page: u32) -> Word {
        Word(self.words[page as usize].load(Ordering::Acquire))
    }

    /// Returns the first open page from `from` on, wrapping around at the end.
    pub fn open_page(&self, from: u32) -> Option<u32> {
        if self.open_pages.load(Ordering::Relaxed) == 0 {
            return None;
        }
        (from..self.pages()).chain(0..from).find(|page| self.state(*page).is_open())
    }

    /// Returns the pages of `bytes` bytes from `gpa` on. Returns `None` if they do not lie in one
    /// region, or if `bytes` is 0.
    pub fn locate(&self, gpa: u64, bytes: u64) -> Option<Range<u32>> {
        let last = gpa.checked_add(bytes.checked_sub(1)?)?;
        let mut first = 0;
        for region in &self.regions {
            if region.contains(&gpa) && region.contains(&last) {
                let page = |at: u64| (first + (at - region.start) / PAGE_BYTES) as u32;
                return Some(page(gpa)..page(last) + 1);
            }
            first += (region.end - region.start) / PAGE_BYTES;
        }
        None
    }

    /// Opens pages without taking them into use, so that they are open before their first use.
    pub fn open_ahead(&self, pages: Range<u32>) -> io::Result<()> {
        let _changes = lock(&self.changes);
        let is_openable = |word: Word| !word.is_open() && !word.is_private();
        self.open(&pages.filter(|page| is_openable(self.state(*page))).collect::<Vec<_>>())
    }

    /// Takes pages into use if the policy keeps pages and all of them are open, and adds them to
    /// `held`. Returns `false` if it took none.
    pub fn take_hits(&self, wanted: &[Range<u32>], held: &mut Vec<Range<u32>>) -> bool {
        let before = held.len();
        let all = self.policy.keeps()
            && wanted.iter().cloned().flatten().all(|page| {
                let hit = self.hit(page);
                if hit {
                    hold(held, before, page);
                }
                hit
            });
        if !all {
            self.release_and_keep(&held[before..]);
            held.truncate(before);
        }
        all
    }

    /// Takes pages into use, all or none, and adds them to `held`. The caller also uses the pages
    /// of `ring`. Waits while a page is being revoked, unless the caller uses that page already.
    /// Refuses private pages, even those that the caller uses already.
    pub fn take(
        &self,
        wanted: &[Range<u32>],
        ring: &[Range<u32>],
        held: &mut Vec<Range<u32>>,
    ) -> Result<Taken, NoAccess> {
        let before = held.len();
        let mut taken = Taken::default();
        let mut missed = Vec::new();
        for page in wanted.iter().cloned().flatten() {
            taken.pages += 1;
            if self.policy.keeps() && self.hit(page) {
                hold(held, before, page);
            } else {
                missed.push(page);
            }
        }
        if !missed.is_empty() {
            match self.take_slowly(&missed, ring, before, held) {
                Ok(open) => taken.hits = open,
                Err(error) => {
                    match &error {
                        NoAccess::Private => add(&self.counters.refused_private, 1),
                        NoAccess::Failed(error) => (self.on_failure)(error),
                    }
                    self.release(&held[before..]);
                    held.truncate(before);
                    return Err(error);
                }
            }
        }
        taken.hits += taken.pages - missed.len() as u64;
        Ok(taken)
    }

    fn hit(&self, page: u32) -> bool {
        let word = &self.words[page as usize];
        let used = |word| Word(word).used().map(|word| word.0);
        word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, used).is_ok()
    }

    /// Takes pages under the lock, and returns how many were open by then.
    fn take_slowly(
        &self,
        missed: &[u32],
        ring: &[Range<u32>],
        before: usize,
        held: &mut Vec<Range<u32>>,
    ) -> Result<u64, NoAccess> {
        let mut changes = lock(&self.changes);
        loop {
            if missed.iter().any(|page| self.state(*page).is_private()) {
                return Err(NoAccess::Private);
            }
            let own = |page| ring.iter().chain(&held[..]).any(|range| range.contains(&page));
            let foreign = |page: &&u32| self.state(**page).is_closing() && !own(**page);
            if missed.iter().find(foreign).is_none() {
                break;
            }
            add(&self.counters.device_waits, 1);
            changes = self.wait(changes);
        }
        let mut closed: Vec<u32> =
            missed.iter().copied().filter(|page| !self.state(*page).is_open()).collect();
        let open = (missed.len() - closed.len()) as u64;
        closed.sort_unstable();
        closed.dedup();
        self.open(&closed).map_err(NoAccess::Failed)?;
        for page in missed {
            let word = Word(self.words[*page as usize].fetch_add(1, Ordering::AcqRel));
            debug_assert!(word.is_open());
            hold(held, before, *page);
        }
        Ok(open)
    }

    /// Opens closed pages in ascending order, each run of adjoining pages by one call. The caller
    /// holds the lock `changes`.
    fn open(&self, closed: &[u32]) -> io::Result<()> {
        for run in closed.chunk_by(|a, b| a + 1 == *b) {
            self.gate.open(run[0]..run[run.len() - 1] + 1)?;
            add(&self.counters.requests, 1);
            add(&self.counters.pages_opened, run.len() as u64);
            run.iter().for_each(|page| self.set(*page, Word::OPENED));
            self.open_pages.fetch_add(run.len() as u32, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Ends the use of pages. The policy `request` closes those without another user.
    pub fn release(&self, held: &[Range<u32>]) {
        if self.policy.keeps() {
            return self.release_and_keep(held);
        }
        if held.is_empty() {
            return;
        }
        let _changes = lock(&self.changes);
        for range in held {
            let idle = range.clone().filter(|page| {
                let word = self.drop_use(*page);
                word.is_idle() && !word.is_closing()
            });
            let idle: Vec<u32> = idle.collect();
            for run in idle.chunk_by(|a, b| a + 1 == *b) {
                self.close(run);
                add(&self.counters.returns, 1);
            }
        }
        self.changed.notify_all();
    }

    /// Closes idle pages that adjoin each other. The caller holds the lock `changes`. If the system
    /// cannot close them, the VM has failed.
    fn close(&self, run: &[u32]) {
        let pages = run[0]..run[run.len() - 1] + 1;
        match self.gate.close(pages.clone()) {
            Ok(()) => {
                self.open_pages.fetch_sub(run.len() as u32, Ordering::Relaxed);
                pages.for_each(|page| self.set(page, self.state(page).closed()));
            }
            Err(error) => (self.on_failure)(&error),
        }
    }

    /// Ends the use of pages, and leaves them open.
    pub fn release_and_keep(&self, held: &[Range<u32>]) {
        for page in held.iter().cloned().flatten() {
            let word = self.drop_use(page);
            if word.is_awaited() {
                // The revocation or conversion holds the lock until it waits, so this notification
                // cannot be lost.
                drop(lock(&self.changes));
                self.changed.notify_all();
            }
        }
    }

    fn drop_use(&self, page: u32) -> Word {
        Word(self.words[page as usize].fetch_sub(1, Ordering::AcqRel)).released()
    }

    /// Revokes a page: lets no thread begin to use it, waits until its users end, and closes it.
    /// Returns `false` if the page is closed already. If the system cannot close the page, the VM
    /// has failed.
    pub fn revoke(&self, page: u32) -> bool {
        let _one = lock(&self.revoking);
        let mut changes = lock(&self.changes);
        let word = &self.words[page as usize];
        let closing = |word| Word(word).closing().map(|word| word.0);
        if word.fetch_update(Ordering::AcqRel, Ordering::Acquire, closing).is_err() {
            return false;
        }
        if !self.state(page).is_idle() {
            let start = Instant::now();
            while !self.state(page).is_idle() {
                changes = self.wait(changes);
            }
            add(&self.counters.revoke_waits, 1);
            add(&self.counters.revoke_wait_ns, start.elapsed().as_nanos() as u64);
        }
        match self.gate.close(page..page + 1) {
            Ok(()) => {
                self.set(page, self.state(page).closed());
                self.open_pages.fetch_sub(1, Ordering::Relaxed);
                add(&self.counters.revoked, 1);
            }
            Err(error) => {
                self.set(page, self.state(page).reopened());
                (self.on_failure)(&error);
            }
        }
        self.changed.notify_all();
        true
    }

    fn set(&self, page: u32, word: Word) {
        self.words[page as usize].store(word.0, Ordering::Release);
    }

    fn wait<'a>(&self, changes: MutexGuard<'a, ()>) -> MutexGuard<'a, ()> {
        self.changed.wait(changes).unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a page to the ranges in `held` after the first `before`, and merges it with the last if
/// they adjoin.
fn hold(held: &mut Vec<Range<u32>>, before: usize, page: u32) {
    match held[before..].last_mut() {
        Some(last) if last.end == page => last.end += 1,
        _ => held.push(page..page + 1),
    }
}
