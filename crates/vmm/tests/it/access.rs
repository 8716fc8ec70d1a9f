//! Grants and revocations: the number of calls, and the pages that are open.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use unspin_vmm::access::counters::read;
use unspin_vmm::access::gate::Gate;
use unspin_vmm::access::revoker::Revoker;
use unspin_vmm::access::table::{NoAccess, Table};
use unspin_vmm::access::window::CHAIN_PAGES_MAX;
use unspin_vmm::access::{DeviceMemory, Policy};
use unspin_vmm::memory;
use unspin_vmm::virtio::Worker;
use unspin_vmm::virtio::block::Block;
use vm_memory::GuestAddress;

use crate::driver::{DATA, Driver};

pub const PAGE: u64 = 4096;
pub const PAGES: u32 = 16;

/// A gate that records calls, and may refuse to open.
#[derive(Debug, Default)]
pub struct Calls {
    pub open: Mutex<BTreeSet<u32>>,
    opened: Mutex<Vec<Range<u32>>>,
    pub closed: Mutex<Vec<Range<u32>>>,
    refuses: AtomicBool,
    /// The number of failures, each of which would end the VM.
    failures: AtomicU32,
}

#[derive(Debug)]
pub struct Shared(pub Arc<Calls>);

impl Gate for Shared {
    fn open(&self, pages: Range<u32>) -> io::Result<()> {
        if self.0.refuses.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.0.opened.lock().unwrap().push(pages.clone());
        self.0.open.lock().unwrap().extend(pages);
        Ok(())
    }

    fn close(&self, pages: Range<u32>) -> io::Result<()> {
        self.0.closed.lock().unwrap().push(pages.clone());
        self.0.open.lock().unwrap().retain(|page| !pages.contains(page));
        Ok(())
    }
}

pub fn table(policy: Policy, pages: u32) -> (Arc<Table>, Arc<Calls>) {
    let calls = Arc::new(Calls::default());
    let its = Arc::clone(&calls);
    let fail = Box::new(move |error: &io::Error| {
        assert!(its.refuses.load(Ordering::Relaxed), "{error}");
        its.failures.fetch_add(1, Ordering::Relaxed);
    });
    let range = 0..u64::from(pages) * PAGE;
    let table = Table::new(vec![range], policy, Box::new(Shared(Arc::clone(&calls))), fail);
    (Arc::new(table), calls)
}

pub fn devices(table: &Arc<Table>) -> DeviceMemory {
    let bytes = u64::from(table.pages()) * PAGE;
    DeviceMemory::restricted(memory::new(bytes).unwrap(), Arc::clone(table))
}

/// Returns a chain: 100 bytes in page 1, the end of page 2, all of page 3, and 8 bytes in page 5.
pub fn pieces() -> [(GuestAddress, usize); 3] {
    [(0x1000, 100), (0x2f00, 0x1100), (0x5008, 8)].map(|(at, bytes)| (GuestAddress(at), bytes))
}

#[test]
fn a_policy_says_how_many_calls_there_are_and_what_stays_open() {
    for (policy, opened, closed) in [
        (Policy::Request, vec![1..2, 2..4, 5..6], vec![1..2, 2..4, 5..6]),
        (Policy::Cache, vec![1..2, 2..4, 5..6], vec![]),
        (Policy::Batch, vec![1..4, 5..6], vec![]),
    ] {
        let (table, calls) = table(policy.clone(), PAGES);
        let window = devices(&table).window();
        assert!(window.hold(&pieces()));
        window.release();
        assert_eq!(*calls.opened.lock().unwrap(), opened, "{policy:?}");
        assert_eq!(*calls.closed.lock().unwrap(), closed, "{policy:?}");
        assert!(window.hold(&pieces()));
        let again = if policy.keeps() { opened.len() } else { 2 * opened.len() };
        assert_eq!(calls.opened.lock().unwrap().len(), again, "{policy:?}");
        drop(window);
        let counters = &table.counters;
        let hits = if policy.keeps() { 4 } else { 0 };
        assert_eq!((read(&counters.pages_asked), read(&counters.hits)), (8, hits), "{policy:?}");
        assert_eq!(read(&counters.requests), again as u64);
    }
}

#[test]
fn a_refused_chain_leaves_nothing_in_use() {
    for policy in [Policy::Request, Policy::Cache, Policy::Batch] {
        let (table, calls) = table(policy, PAGES);
        let window = devices(&table).window();
        assert!(window.hold(&pieces()[..1]));
        calls.refuses.store(true, Ordering::Relaxed);
        assert!(!window.hold(&[(GuestAddress(u64::from(PAGES) * PAGE - 8), 16)]), "not all memory");
        assert!(!window.has_failed());
        assert!(!window.hold(&pieces()));
        assert!(window.has_failed());
        assert_eq!(calls.failures.load(Ordering::Relaxed), 1);
        window.release();
        assert!((0..PAGES).all(|page| table.state(page).users() == 0));
        assert_eq!(read(&table.counters.refused), 2);
    }
}

#[test]
fn a_chain_of_more_than_16_mib_is_refused() {
    let pages = 64;
    let (table, _) = table(Policy::Cache, pages);
    let window = devices(&table).window();
    let all = (GuestAddress(0), (u64::from(pages) * PAGE) as usize);
    let most = CHAIN_PAGES_MAX as usize / pages as usize;
    assert!(window.hold(&vec![all; most]));
    assert!(!window.hold(&[(GuestAddress(0), 1)]));
    window.release();
    assert!(window.hold(&[(GuestAddress(0), 1)]));
}

#[test]
fn a_revocation_waits_for_the_chain_and_not_the_chain_for_the_revocation() {
    for policy in [Policy::Request, Policy::Cache, Policy::Batch] {
        let (table, calls) = table(policy, PAGES);
        let window = devices(&table).window();
        assert!(window.hold(&pieces()));
        let own = Arc::clone(&table);
        let revocation = thread::spawn(move || own.revoke(3));
        while !table.state(3).is_closing() {
            thread::yield_now();
        }
        // The same chain takes the page again. If it waited, it would wait forever.
        assert!(window.hold(&[(GuestAddress(0x3800), 8)]));
        thread::sleep(Duration::from_millis(20));
        assert!(!revocation.is_finished() && calls.open.lock().unwrap().contains(&3));
        window.release();
        assert!(revocation.join().unwrap());
        assert!(!calls.open.lock().unwrap().contains(&3));
        assert_eq!(read(&table.counters.revoke_waits), 1);
    }
}

#[test]
fn a_disk_reads_right_under_revocations() {
    for policy in [Policy::Request, Policy::Cache, Policy::Batch] {
        let file = tempfile::tempfile().unwrap();
        file.set_len(512).unwrap();
        let mut block = Block::new(file, 512, false, 0);
        let mut driver = Driver::restricted(1, false, &policy);
        let table = Arc::clone(driver.devices.table().unwrap());
        let revoker = Revoker::start(Arc::clone(&table), 20_000, || Ok(())).unwrap();
        driver.write(DATA, &[0; 16]);
        let data = DATA + 0x1000;
        driver.chain(0, &[(DATA, 16, false), (data, 512, true), (DATA + 0x2000, 1, true)]);
        let mut index = 1;
        while read(&table.counters.revoked) < 500 {
            driver.write(data, &[7; 512]);
            driver.write(DATA + 0x2000, &[9]);
            block.handle(0, &mut driver.rings);
            assert_eq!((driver.used(0).0, driver.read(DATA + 0x2000, 1)), (index, vec![0]));
            assert_eq!(driver.read(data, 512), vec![0; 512]);
            index = index.wrapping_add(1);
            driver.offer(0, index, &[0; 256]);
        }
        drop(revoker);
        assert_eq!(read(&table.counters.refused), 0);
    }
}

/// A step of one of three users, or a revocation or conversion of a page without users.
#[derive(Debug, Clone)]
enum Step {
    Take(usize, Vec<Range<u32>>),
    Release(usize),
    Revoke(u32),
    Convert(u32, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0..PAGES, 1..4u32).prop_map(|(start, pages)| start..(start + pages).min(PAGES));
    prop_oneof![
        (0..3usize, prop::collection::vec(range, 1..4))
            .prop_map(|(who, what)| Step::Take(who, what)),
        (0..3usize).prop_map(Step::Release),
        (0..PAGES).prop_map(Step::Revoke),
        (0..PAGES, any::<bool>()).prop_map(|(page, private)| Step::Convert(page, private)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// After any sequence of steps, a page in use is open, the gate agrees with the table, exactly
    /// the pages that the policy keeps are open, and no private page was granted.
    #[test]
    fn states_gate_and_users_agree(
        keeps in any::<bool>(),
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let (table, calls) = table(if keeps { Policy::Batch } else { Policy::Request }, PAGES);
        let mut held = vec![Vec::new(); 3];
        let (mut open, mut private) = (BTreeSet::new(), BTreeSet::new());
        let count = |held: &[Vec<Range<u32>>], page| {
            held.iter().flatten().filter(|range| range.contains(&page)).count() as u32
        };
        for step in steps {
            match step {
                Step::Take(who, wanted) => {
                    let taken = table.take(&wanted, &[], &mut held[who]);
                    let mut pages = wanted.iter().cloned().flatten();
                    let refused = pages.any(|page| private.contains(&page));
                    prop_assert_eq!(matches!(taken, Err(NoAccess::Private)), refused);
                    prop_assert_eq!(taken.is_ok(), !refused);
                    open.extend(wanted.into_iter().flatten().filter(|_| !refused));
                }
                Step::Release(who) => {
                    let pages = std::mem::take(&mut held[who]);
                    table.release(&pages);
                    let idle = pages.into_iter().flatten().filter(|page| count(&held, *page) == 0);
                    let idle: BTreeSet<u32> = idle.filter(|_| !keeps).collect();
                    open.retain(|page| !idle.contains(page));
                }
                Step::Revoke(page) if count(&held, page) == 0 => {
                    prop_assert_eq!(table.revoke(page), open.remove(&page));
                }
                Step::Convert(page, true) if count(&held, page) == 0 => {
                    table.make_private(page..page + 1);
                    open.remove(&page);
                    private.insert(page);
                }
                Step::Convert(page, false) => {
                    table.make_shared(page..page + 1);
                    private.remove(&page);
                }
                Step::Revoke(_) | Step::Convert(..) => {}
            }
            prop_assert_eq!(&*calls.open.lock().unwrap(), &open);
            for page in 0..PAGES {
                let state = table.state(page);
                prop_assert_eq!(state.is_open(), open.contains(&page));
                prop_assert_eq!(state.is_private(), private.contains(&page));
                prop_assert_eq!(state.users(), count(&held, page));
            }
        }
    }
}
