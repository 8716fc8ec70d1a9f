//! Revocation and conversion of 5,000 pages under load: afterwards, each access asks again. Three
//! faulty doubles must fail here. One of them does what the published implementation seems to do.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use unspin_vmm::access::Policy;
use unspin_vmm::access::counters::read;
use unspin_vmm::access::gate::{Gate, Mprotect};
use unspin_vmm::access::table::Table;
use unspin_vmm::memory::{self, Memory};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

const PAGE: u64 = 4096;
const PAGES: u32 = 5_000;
const THREADS: u64 = 2;

/// A gate that makes the real calls, and records them.
#[derive(Debug)]
struct Recorder {
    gate: Mprotect,
    /// For each page: whether it is open, how often it was opened, and how many uses it has.
    open: Vec<AtomicBool>,
    opened: Vec<AtomicU32>,
    users: Vec<AtomicU32>,
    closed_in_use: AtomicU32,
    used_while_closed: AtomicU32,
}

#[derive(Debug)]
struct Shared(Arc<Recorder>);

impl Gate for Shared {
    fn open(&self, pages: Range<u32>) -> io::Result<()> {
        self.0.gate.open(pages.clone())?;
        for page in pages {
            self.0.opened[page as usize].fetch_add(1, Ordering::SeqCst);
            self.0.open[page as usize].store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    fn close(&self, pages: Range<u32>) -> io::Result<()> {
        for page in pages.clone() {
            self.0.open[page as usize].store(false, Ordering::SeqCst);
            let users = self.0.users[page as usize].load(Ordering::SeqCst);
            self.0.closed_in_use.fetch_add(users, Ordering::SeqCst);
        }
        self.0.gate.close(pages)
    }
}

/// Returns a mapping of [`PAGES`] pages, all closed, with its recorder.
fn mapping() -> (Memory, Arc<Recorder>) {
    let memory = memory::new(u64::from(PAGES) * PAGE).unwrap();
    let parts: Vec<_> = memory.iter().map(|region| (region.as_ptr(), region.len())).collect();
    // SAFETY: all uses of the recorder end before the memory is dropped.
    let gate = unsafe { Mprotect::new(&parts) };
    gate.close(0..PAGES).unwrap();
    let counts = || (0..PAGES).map(|_| AtomicU32::new(0)).collect();
    let recorder = Recorder {
        gate,
        open: (0..PAGES).map(|_| AtomicBool::new(false)).collect(),
        opened: counts(),
        users: counts(),
        closed_in_use: AtomicU32::new(0),
        used_while_closed: AtomicU32::new(0),
    };
    (memory, Arc::new(recorder))
}

/// An implementation that grants pages to threads, and takes them back.
trait Access: Sync {
    /// Whether pages in use can be touched. A double may close a page while a thread uses it.
    const IS_SAFE: bool;

    fn take(&self, pages: &[u32]) -> Vec<Range<u32>>;
    fn release(&self, held: &[Range<u32>]);
    fn revoke(&self, page: u32);
}

impl Access for Table {
    const IS_SAFE: bool = true;

    fn take(&self, pages: &[u32]) -> Vec<Range<u32>> {
        let mut held = Vec::new();
        let wanted: Vec<_> = pages.iter().map(|page| *page..page + 1).collect();
        Table::take(self, &wanted, &[], &mut held).unwrap();
        held
    }

    fn release(&self, held: &[Range<u32>]) {
        Table::release(self, held);
    }

    fn revoke(&self, page: u32) {
        Table::revoke(self, page);
    }
}

/// A table from which a guest takes each page by making it private, and then shares the page again.
struct Converting(Table);

impl Access for Converting {
    const IS_SAFE: bool = true;

    fn take(&self, pages: &[u32]) -> Vec<Range<u32>> {
        let mut held = Vec::new();
        let wanted: Vec<_> = pages.iter().map(|page| *page..page + 1).collect();
        // A page is private for a moment.
        while Table::take(&self.0, &wanted, &[], &mut held).is_err() {
            thread::yield_now();
        }
        held
    }

    fn release(&self, held: &[Range<u32>]) {
        Table::release(&self.0, held);
    }

    fn revoke(&self, page: u32) {
        self.0.make_private(page..page + 1);
        self.0.make_shared(page..page + 1);
    }
}

/// The fault of a double.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    /// The bitmap's range takes bytes, but gets page numbers.
    Unit,
    /// The bitmap that is cleared is a deep copy of the bitmap that devices read.
    Copy,
    /// The revocation does not wait for I/O in flight.
    NoWait,
}

/// A bitmap of granted pages next to the gate, as in cloud-hypervisor's mshv/mod.rs by reading.
struct Double {
    defect: Defect,
    gate: Shared,
    granted: Mutex<Vec<bool>>,
    /// The copy that the vCPU's thread has.
    copy: Mutex<Vec<bool>>,
}

impl Double {
    fn new(recorder: &Arc<Recorder>, defect: Defect) -> Double {
        let bitmap = || Mutex::new(vec![false; PAGES as usize]);
        Double { defect, gate: Shared(Arc::clone(recorder)), granted: bitmap(), copy: bitmap() }
    }

    /// Clears a range of addresses, as AtomicBitmap::reset_addr_range does.
    fn reset_addr_range(bitmap: &Mutex<Vec<bool>>, start: u64, bytes: u64) {
        let mut bitmap = bitmap.lock().unwrap();
        for page in start / PAGE..=(start + bytes - 1) / PAGE {
            bitmap[page as usize] = false;
        }
    }
}

impl Access for Double {
    const IS_SAFE: bool = false;

    fn take(&self, pages: &[u32]) -> Vec<Range<u32>> {
        let mut granted = self.granted.lock().unwrap();
        for page in pages {
            if !std::mem::replace(&mut granted[*page as usize], true) {
                self.gate.open(*page..page + 1).unwrap();
            }
        }
        pages.iter().map(|page| *page..page + 1).collect()
    }

    fn release(&self, _: &[Range<u32>]) {}

    fn revoke(&self, page: u32) {
        let address = u64::from(page) * PAGE;
        match self.defect {
            Defect::Unit => Double::reset_addr_range(&self.granted, page.into(), 1),
            Defect::Copy => Double::reset_addr_range(&self.copy, address, PAGE),
            Defect::NoWait => Double::reset_addr_range(&self.granted, address, PAGE),
        }
        self.gate.close(page..page + 1).unwrap();
    }
}

/// Revokes each page once while threads use pages, many of them near the revoked page.
fn revoke_under_load<A: Access>(access: &A, recorder: &Recorder, memory: &Memory) {
    let (stop, current) = (AtomicBool::new(false), AtomicU32::new(0));
    let load = |seed: u64| {
        let mut random = seed;
        let mut next = |end: u32| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((random >> 33) % u64::from(end)) as u32
        };
        while !stop.load(Ordering::SeqCst) {
            let near = current.load(Ordering::SeqCst);
            let pages: Vec<u32> = (0..1 + next(4))
                .map(|_| if next(2) == 0 { (near + next(3)) % PAGES } else { next(PAGES) })
                .collect();
            let held = access.take(&pages);
            for page in &pages {
                recorder.users[*page as usize].fetch_add(1, Ordering::SeqCst);
            }
            for page in &pages {
                if A::IS_SAFE {
                    let address = GuestAddress(u64::from(*page) * PAGE);
                    memory.write_obj(1u8, address).unwrap();
                }
                let open = recorder.open[*page as usize].load(Ordering::SeqCst);
                recorder.used_while_closed.fetch_add(u32::from(!open), Ordering::SeqCst);
            }
            thread::yield_now();
            for page in &pages {
                recorder.users[*page as usize].fetch_sub(1, Ordering::SeqCst);
            }
            access.release(&held);
        }
    };
    thread::scope(|scope| {
        (0..THREADS).for_each(|seed| drop(scope.spawn(move || load(seed + 1))));
        for page in 0..PAGES {
            current.store(page, Ordering::SeqCst);
            // A device takes the page first, so that there is a page to revoke.
            let held = access.take(&[page]);
            access.release(&held);
            thread::yield_now();
            access.revoke(page);
        }
        stop.store(true, Ordering::SeqCst);
    });
}

/// Returns the violations under load, and the number of pages that a thread uses without a request
/// after a revocation.
fn judge(access: &impl Access, recorder: &Recorder, memory: &Memory) -> (u32, u32, u32) {
    revoke_under_load(access, recorder, memory);
    let mut silent = 0;
    for page in 0..PAGES {
        let pages = [page];
        access.release(&access.take(&pages));
        access.revoke(page);
        let before = recorder.opened[page as usize].load(Ordering::SeqCst);
        access.release(&access.take(&pages));
        let requests = recorder.opened[page as usize].load(Ordering::SeqCst) - before;
        silent += u32::from(requests == 0);
    }
    let count = |counter: &AtomicU32| counter.load(Ordering::SeqCst);
    (count(&recorder.used_while_closed), count(&recorder.closed_in_use), silent)
}

fn table(policy: &Policy, recorder: &Arc<Recorder>) -> Table {
    let gate = Box::new(Shared(Arc::clone(recorder)));
    let fail = Box::new(|error: &io::Error| panic!("{error}"));
    let range = 0..u64::from(PAGES) * PAGE;
    Table::new(vec![range], policy.clone(), gate, fail)
}

#[test]
fn after_a_conversion_each_access_asks_again() {
    for policy in [Policy::Request, Policy::Cache, Policy::Batch] {
        let (memory, recorder) = mapping();
        let access = Converting(table(&policy, &recorder));
        assert_eq!(judge(&access, &recorder, &memory), (0, 0, 0), "{policy:?}");
        let counters = &access.0.counters;
        let (open, waits) = (read(&counters.converted_open), read(&counters.convert_waits));
        let least = if policy.keeps() { 2 * u64::from(PAGES) } else { 1 };
        assert!(open >= least && waits > 0, "{policy:?}: {open} pages, {waits} waits");
    }
}

#[test]
fn after_a_revocation_each_access_asks_again() {
    for policy in [Policy::Request, Policy::Cache, Policy::Batch] {
        let (memory, recorder) = mapping();
        let table = table(&policy, &recorder);
        assert_eq!(judge(&table, &recorder, &memory), (0, 0, 0), "{policy:?}");
        let (revoked, waits) = (read(&table.counters.revoked), read(&table.counters.revoke_waits));
        let least = if policy.keeps() { 2 * u64::from(PAGES) } else { 1 };
        assert!(revoked >= least && waits > 0, "{policy:?}: {revoked} revoked, {waits} waits");
    }
}

#[test]
fn what_the_published_implementation_seems_to_do_fails_the_same_test() {
    for defect in [Defect::Unit, Defect::Copy] {
        let (memory, recorder) = mapping();
        let double = Double::new(&recorder, defect);
        let (used_while_closed, _, silent) = judge(&double, &recorder, &memory);
        assert!(used_while_closed > 0, "{defect:?}");
        assert!(silent > PAGES - 10, "{defect:?}: {silent} pages");
    }
}

#[test]
fn a_revocation_that_does_not_wait_fails_the_same_test() {
    let (memory, recorder) = mapping();
    let double = Double::new(&recorder, Defect::NoWait);
    let (_, closed_in_use, silent) = judge(&double, &recorder, &memory);
    assert!(closed_in_use > 0);
    assert_eq!(silent, 0);
}
