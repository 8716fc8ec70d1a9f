//! Conversions of pages that a guest reports: they revoke, they wait, and they are checked.

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use unspin_vmm::access::Policy;
use unspin_vmm::access::conversions::Conversions;
use unspin_vmm::access::counters::read;
use unspin_vmm::access::gate::Gate;
use unspin_vmm::access::table::Table;
use unspin_vmm::virtio::block::Block;
use unspin_vmm::virtio::{Worker, net};
use vm_memory::GuestAddress;

use crate::access::{Calls, PAGE, PAGES, Shared, devices, pieces, table};
use crate::driver::{DATA, Driver, full_pipe};

const MAP_GPA_RANGE: u64 = 12;
const PRIVATE: u64 = 1 << 4;
const SHARED: u64 = 0;
const DONE: u64 = 0;
const INVALID: u64 = -22_i64 as u64;
const NO_SUCH_CALL: u64 = -1000_i64 as u64;

fn report(conversions: &Conversions, pages: Range<u64>, attributes: u64) -> u64 {
    let args = [pages.start * PAGE, pages.end - pages.start, attributes, 0, 0, 0];
    conversions.call(MAP_GPA_RANGE, &args)
}

fn plain(table: &Arc<Table>) -> Conversions {
    Conversions::new(Arc::clone(table), false)
}

fn private(table: &Table) -> Vec<u32> {
    (0..table.pages()).filter(|page| table.state(*page).is_private()).collect()
}

fn open(table: &Table) -> Vec<u32> {
    (0..table.pages()).filter(|page| table.state(*page).is_open()).collect()
}

/// Converts pages 2 to 4 while a device uses pages 1, 2, 3 and 5. Returns an error unless the
/// conversion ends after the device's use, and leaves its pages closed.
fn judge(
    policy: Policy,
    convert: impl FnOnce(&Arc<Table>, &Arc<Calls>) + Send + 'static,
) -> Result<(), &'static str> {
    let (table, calls) = table(policy, PAGES);
    let window = devices(&table).window();
    assert!(window.hold(&pieces()));
    let (own, its) = (Arc::clone(&table), Arc::clone(&calls));
    let conversion = thread::spawn(move || convert(&own, &its));
    // A conversion that does not wait has ended by then.
    let start = Instant::now();
    while !table.state(4).is_private() && start.elapsed() < Duration::from_secs(10) {
        if conversion.is_finished() {
            return Err("it did not wait");
        }
        thread::yield_now();
    }
    thread::sleep(Duration::from_millis(20));
    let used = |page| calls.open.lock().unwrap().contains(page);
    if conversion.is_finished() || ![1, 2, 3, 5].iter().all(used) {
        return Err("it did not wait");
    }
    // The same chain asks again. It is refused at once; if it waited, it would wait forever.
    if window.hold(&[(GuestAddress(0x3800), 8)]) {
        return Err("a private page was granted");
    }
    window.release();
    conversion.join().unwrap();
    if [2, 3, 4].iter().any(used) {
        return Err("a private page is open");
    }
    let counters = &table.counters;
    assert_eq!((read(&counters.converted_open), read(&counters.convert_waits)), (2, 1));
    assert_eq!((read(&counters.to_private), read(&counters.pages_to_private)), (1, 3));
    assert!((0..PAGES).all(|page| table.state(page).users() == 0));
    Ok(())
}

#[test]
fn a_conversion_waits_for_io_in_flight() {
    for policy in [Policy::Request, Policy::Cache, Policy::Batch] {
        let judged = judge(policy.clone(), |table, _| {
            assert_eq!(report(&plain(table), 2..5, PRIVATE), DONE);
        });
        assert_eq!(judged, Ok(()), "{policy:?}");
    }
}

#[test]
fn a_conversion_that_does_not_wait_fails_the_same_test() {
    // It takes the pages from devices at once.
    let judged = judge(Policy::Cache, |_, calls| {
        Shared(Arc::clone(calls)).close(2..5).unwrap();
    });
    assert_eq!(judged, Err("it did not wait"));
    // It marks the pages for devices to come, but not for those that use them.
    let judged = judge(Policy::Cache, |table, calls| {
        let own = Arc::clone(table);
        thread::spawn(move || own.make_private(2..5));
        while !table.state(4).is_private() {
            thread::yield_now();
        }
        Shared(Arc::clone(calls)).close(2..5).unwrap();
    });
    assert_eq!(judged, Err("it did not wait"));
}

#[test]
fn a_conversion_waits_for_a_packet_that_is_being_sent() {
    const SEND: usize = 1;
    for policy in [Policy::Request, Policy::Cache, Policy::Batch] {
        let (link, far) = full_pipe();
        let (_, mut pairs) = net::pairs(vec![link], [2, 0, 0, 0, 0, 1]);
        let mut driver = Driver::restricted(2, false, &policy);
        let table = Arc::clone(driver.devices.table().unwrap());
        driver.chain(SEND as u64, &[(DATA, 100, false)]);
        let mut rings = std::mem::take(&mut driver.rings);
        let device = thread::spawn(move || pairs[0].handle(SEND, &mut rings));
        let page = DATA / PAGE;
        while table.state(page as u32).users() == 0 {
            assert!(!device.is_finished(), "the device did not wait");
            thread::yield_now();
        }
        let own = Arc::clone(&table);
        let conversion = thread::spawn(move || report(&plain(&own), page..page + 1, PRIVATE));
        thread::sleep(Duration::from_millis(30));
        assert!(!conversion.is_finished() && !device.is_finished(), "{policy:?}");
        assert!(table.state(page as u32).is_open(), "{policy:?}");
        // The device's system call ends once there is room.
        while !device.is_finished() {
            let _ = far.recv(&mut [0; 64]);
        }
        assert_eq!(conversion.join().unwrap(), DONE);
        assert!(!table.state(page as u32).is_open(), "{policy:?}");
        device.join().unwrap();
        assert_eq!(read(&table.counters.convert_waits), 1, "{policy:?}");
        assert_eq!(driver.used(SEND as u64).0, 1);
    }
}

#[test]
fn a_private_page_is_refused_until_it_is_shared() {
    for policy in [Policy::Request, Policy::Cache, Policy::Batch, Policy::Pregrant(None)] {
        let (table, calls) = table(policy.clone(), PAGES);
        if let Policy::Pregrant(_) = policy {
            table.open_ahead(0..PAGES).unwrap();
        }
        let (conversions, window) = (plain(&table), devices(&table).window());
        assert!(window.hold(&pieces()));
        window.release();
        assert_eq!(report(&conversions, 3..4, PRIVATE), DONE);
        assert!(!calls.open.lock().unwrap().contains(&3));
        assert!(!window.hold(&pieces()), "{policy:?}");
        assert!(!window.has_failed(), "the VM goes on");
        window.release();
        assert!(window.hold(&pieces()[..1]), "other pages are granted");
        window.release();
        table.open_ahead(0..PAGES).unwrap();
        assert!(!calls.open.lock().unwrap().contains(&3));
        assert_eq!(report(&conversions, 3..4, SHARED), DONE);
        assert!(window.hold(&pieces()), "{policy:?}");
        drop(window);
        let counters = &table.counters;
        assert_eq!((read(&counters.refused), read(&counters.refused_private)), (1, 1));
        assert!((0..PAGES).all(|page| table.state(page).users() == 0));
    }
}

#[test]
fn the_first_report_of_a_confidential_guest_makes_all_else_private() {
    let (table, calls) = table(Policy::Pregrant(None), PAGES);
    table.open_ahead(0..PAGES).unwrap();
    let conversions = Conversions::new(Arc::clone(&table), true);
    assert_eq!(report(&conversions, 0..u64::from(PAGES) + 1, SHARED), INVALID);
    assert_eq!(open(&table).len() as u32, PAGES, "nothing was reported yet");
    assert_eq!(report(&conversions, 4..6, SHARED), DONE);
    assert_eq!(private(&table), [0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!(report(&conversions, 8..9, SHARED), DONE);
    assert_eq!(private(&table).len() as u32, PAGES - 3);
    assert!(open(&table).is_empty());
    // All pages adjoin each other, so one call closed them.
    let all = 0..PAGES;
    assert_eq!(*calls.closed.lock().unwrap(), [all]);
}

#[test]
fn a_report_that_makes_no_sense_changes_nothing() {
    const HIGH: u64 = 4 << 30;
    let gate = Shared(Arc::default());
    let regions = vec![0..16 * PAGE, HIGH..HIGH + 16 * PAGE];
    let fail = Box::new(|error: &std::io::Error| panic!("{error}"));
    let table = Arc::new(Table::new(regions, Policy::Cache, Box::new(gate), fail));
    let start = Instant::now();
    for begins_private in [false, true] {
        let conversions = Conversions::new(Arc::clone(&table), begins_private);
        let cases = [
            (0x1001, 1, PRIVATE, "unaligned"),
            (0x1000, 0, PRIVATE, "no page"),
            (0, 17, PRIVATE, "beyond the low memory"),
            (16 * PAGE, 1, PRIVATE, "in the hole"),
            (15 * PAGE, (HIGH - 15 * PAGE) / PAGE + 1, PRIVATE, "across the hole"),
            (HIGH + 15 * PAGE, 2, PRIVATE, "beyond the high memory"),
            (0, 1 << 52, PRIVATE, "the bytes wrap to zero"),
            (0, (1 << 52) + 1, PRIVATE, "the bytes wrap to a page"),
            (0, 1 << 63, PRIVATE, "the bytes wrap"),
            (0, u64::MAX, PRIVATE, "the bytes wrap"),
            (u64::MAX - 0xfff, 1, PRIVATE, "the last page of all"),
            (u64::MAX - 0xfff, 2, PRIVATE, "the end wraps to the first page"),
            (1 << 47, 1, PRIVATE, "an address with a C-bit"),
            (0x1000, 1, PRIVATE | 1 << 5, "a reserved bit"),
            (0x1000, 1, 1 << 63, "a reserved bit"),
            (0x1000, u64::MAX, SHARED, "the bytes wrap"),
        ];
        for (gpa, pages, attributes, what) in cases {
            let result = conversions.call(MAP_GPA_RANGE, &[gpa, pages, attributes, 0, 0, 0]);
            assert_eq!(result, INVALID, "{what}");
        }
        assert_eq!(conversions.call(5, &[0x1000, 1, PRIVATE, 0, 0, 0]), NO_SUCH_CALL);
        assert!(private(&table).is_empty());
    }
    assert!(start.elapsed() < Duration::from_secs(5), "the work has no bound");
    assert_eq!(read(&table.counters.reports_refused), 32);
    let conversions = plain(&table);
    // All sizes of pages are hints.
    let args = [HIGH, 16, PRIVATE | 2, u64::MAX, u64::MAX, u64::MAX];
    assert_eq!(conversions.call(MAP_GPA_RANGE, &args), DONE);
    assert_eq!(private(&table), (16..32).collect::<Vec<_>>());
}

#[test]
fn a_device_leaves_a_ring_in_private_pages_alone() {
    for policy in [Policy::Request, Policy::Cache, Policy::Batch] {
        let file = tempfile::tempfile().unwrap();
        file.set_len(512).unwrap();
        let mut block = Block::new(file, 512, false, 0);
        let mut driver = Driver::restricted(1, false, &policy);
        let table = Arc::clone(driver.devices.table().unwrap());
        let conversions = plain(&table);
        driver.write(DATA, &[0; 16]);
        let pieces = [(DATA, 16, false), (DATA + PAGE, 512, true), (DATA + 2 * PAGE, 1, true)];
        driver.chain(0, &pieces);
        block.handle(0, &mut driver.rings);
        assert_eq!(driver.used(0).0, 1);
        // The data is private: the driver gets the chain back, and the page stays as it is.
        let data = (DATA / PAGE + 1)..(DATA / PAGE + 2);
        assert_eq!(report(&conversions, data.clone(), PRIVATE), DONE);
        driver.write(DATA + PAGE, &[7; 512]);
        driver.offer(0, 2, &[0; 2]);
        block.handle(0, &mut driver.rings);
        assert_eq!((driver.used(0).0, driver.read(DATA + PAGE, 512)), (2, vec![7; 512]));
        assert_eq!(report(&conversions, data, SHARED), DONE);
        driver.offer(0, 3, &[0; 3]);
        block.handle(0, &mut driver.rings);
        assert_eq!((driver.used(0).0, driver.read(DATA + PAGE, 512)), (3, vec![0; 512]));
        // The used ring is private: the device ignores the queue until it is reset.
        assert_eq!(report(&conversions, 2..3, PRIVATE), DONE);
        driver.offer(0, 4, &[0; 4]);
        block.handle(0, &mut driver.rings);
        assert_eq!(report(&conversions, 2..3, SHARED), DONE);
        block.handle(0, &mut driver.rings);
        assert_eq!(driver.used(0).0, 3, "{policy:?}");
        assert!(read(&table.counters.refused_private) >= 2, "{policy:?}");
    }
}

#[test]
fn only_the_migration_msr_is_answered() {
    let (table, _) = table(Policy::Cache, PAGES);
    for begins_private in [false, true] {
        let conversions = Conversions::new(Arc::clone(&table), begins_private);
        let ready = u64::from(!begins_private);
        assert_eq!(conversions.read_msr(0x4b56_4d08), Some(ready));
        assert!(conversions.write_msr(0x4b56_4d08, 1 - ready));
        assert_eq!(conversions.read_msr(0x4b56_4d08), Some(1 - ready));
        assert!(!conversions.write_msr(0x4b56_4d08, 2), "a reserved bit");
        assert!(!conversions.write_msr(0x4b56_4d07, 1));
        assert_eq!(conversions.read_msr(0x4b56_4d07), None);
    }
}
