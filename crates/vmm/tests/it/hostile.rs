//! Device models under a hostile driver: they do not panic, loop, or write a byte that the driver
//! did not offer. `UNSPIN_VMM_CHAINS` sets the number of malformed chains for each model.

use std::env;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use unspin_vmm::access::Policy;
use unspin_vmm::virtio::block::Block;
use unspin_vmm::virtio::console::Console;
use unspin_vmm::virtio::{Left, QUEUE_SIZE, Worker, net};

use crate::driver::{self, DATA, Driver, INDIRECT, MEMORY_BYTES, NEXT, QUEUE_BYTES, WRITE};
use crate::offered::Offered;

/// Malformed chains for each model in an ordinary test.
const CHAINS: u32 = 2_000;
/// The most heads of a case; a rare case has more.
const HEADS: u16 = 8;
/// Cases after which a test counts its chains.
const CASES: u32 = 200;
const DISK_BYTES: u64 = 64 << 10;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A descriptor with any contents, which often nearly make sense.
#[derive(Debug, Clone)]
struct Descriptor {
    at: u64,
    bytes: u32,
    flags: u16,
    next: u16,
}

fn descriptor() -> impl Strategy<Value = Descriptor> {
    let at = prop_oneof![
        4 => DATA..MEMORY_BYTES,
        1 => (0..32u64).prop_map(|slot| DATA + 16 * slot),
        1 => MEMORY_BYTES - 64..MEMORY_BYTES + 64,
        1 => 0..QUEUE_BYTES,
        1 => any::<u64>(),
    ];
    let bytes = prop_oneof![
        2 => Just(1u32),
        2 => Just(16u32),
        2 => (1..8u32).prop_map(|sectors| sectors * 512),
        1 => (0..64u32).prop_map(|entries| entries * 16),
        1 => 0..70_000u32,
        1 => any::<u32>(),
    ];
    let flags = prop_oneof![
        3 => Just(NEXT),
        3 => Just(NEXT | WRITE),
        1 => Just(0),
        1 => Just(WRITE),
        1 => Just(INDIRECT),
        1 => any::<u16>(),
    ];
    let next = prop_oneof![4 => 0..8u16, 1 => 0..300u16, 1 => any::<u16>()];
    (at, bytes, flags, next).prop_map(|(at, bytes, flags, next)| Descriptor {
        at,
        bytes,
        flags,
        next,
    })
}

/// Generates a request of three descriptors, one of which may be replaced by an arbitrary one.
fn nearly_right() -> impl Strategy<Value = Vec<Descriptor>> {
    let right = |at, bytes, flags, next| Descriptor { at, bytes, flags, next };
    let many = prop::collection::vec(descriptor(), 8);
    let data = (any::<bool>(), 1..4u32, 0..6usize);
    (many, data).prop_map(move |(mut all, (writable, sectors, replaced))| {
        let flags = if writable { NEXT | WRITE } else { NEXT };
        let request = [
            right(DATA + 256, 16, NEXT, 1),
            right(DATA + 0x1000, sectors * 512, flags, 2),
            right(DATA + 0x3000, 1, WRITE, 0),
        ];
        for (index, one) in request.into_iter().enumerate().filter(|(at, _)| *at != replaced) {
            all[index] = one;
        }
        all
    })
}

/// A driver's attack on one queue.
#[derive(Debug, Clone)]
struct Attack {
    queue: u64,
    direct: Vec<Descriptor>,
    indirect: Vec<Descriptor>,
    heads: Vec<u16>,
    /// The number of chains by which the available index advances.
    count: u16,
    /// A request's header, at the addresses that descriptors often name.
    header: (u32, u64),
    event_idx: bool,
    /// Index in `POLICIES`.
    policy: u8,
}

fn attack(queues: u64) -> impl Strategy<Value = Attack> {
    let count = prop_oneof![6 => 0..=HEADS, 1 => any::<u16>()];
    let kind = prop_oneof![4 => 0..2u32, 2 => 0..10u32, 1 => any::<u32>()];
    let end = DISK_BYTES / 512;
    let sector = prop_oneof![2 => 0..end, 2 => end - 3..end + 2, 1 => any::<u64>()];
    let head = prop_oneof![4 => Just(0u16), 4 => 0..8u16, 1 => any::<u16>()];
    (
        0..queues,
        prop_oneof![prop::collection::vec(descriptor(), 8), nearly_right()],
        prop::collection::vec(descriptor(), 8),
        prop::collection::vec(head, 8),
        count,
        (kind, sector),
        (any::<bool>(), 0..POLICIES.len() as u8),
    )
        .prop_map(|(queue, direct, indirect, heads, count, header, (event_idx, policy))| {
            Attack { queue, direct, indirect, heads, count, header, event_idx, policy }
        })
}

impl Attack {
    fn write(&self, driver: &Driver) {
        let (kind, sector) = self.header;
        let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        for slot in 0..32 {
            driver.write(DATA + 16 * slot, &header);
        }
        let tables = [(self.queue * QUEUE_BYTES, &self.direct), (DATA, &self.indirect)];
        for (table, descriptors) in tables {
            for (d, index) in descriptors.iter().zip(0..) {
                driver.describe(table, index, d.at, d.bytes, d.flags, d.next);
            }
        }
        driver.offer(self.queue, self.count, &self.heads);
    }
}

/// The policies, one of which applies to each case.
const POLICIES: [Policy; 4] = [Policy::Off, Policy::Request, Policy::Cache, Policy::Batch];

/// Lets a model handle attacks, each in memory of its own, and searches for bytes that the model
/// wrote without an offer. With page access, an access to memory that the driver did not offer ends
/// the test by SIGSEGV. `check` checks the effects outside of memory. Prints how many chains were
/// malformed.
fn survive(queues: u64, mut model: impl FnMut() -> Box<dyn Worker>, mut check: impl FnMut()) {
    let chains = env::var("UNSPIN_VMM_CHAINS").ok().and_then(|count| count.parse().ok());
    let wanted: u32 = chains.unwrap_or(CHAINS);
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let worker = std::cell::RefCell::new(model());
    let check = std::cell::RefCell::new(&mut check);
    let (compared, chains) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let run = |attack: Attack| {
        let policy = &POLICIES[usize::from(attack.policy)];
        let mut driver = Driver::restricted(queues, attack.event_idx, policy);
        attack.write(&driver);
        let all = |driver: &Driver| driver.read(0, MEMORY_BYTES as usize);
        let offered = Offered::new(all(&driver), queues, attack.queue);
        chains.set(chains.get() + offered.malformed());
        let mut worker = worker.borrow_mut();
        let _ = worker.ready(&mut driver.rings);
        let mut handle = || worker.handle(attack.queue as usize, &mut driver.rings);
        // Each pass serves at least one chain, or is the last one. A flush counts as a sixteenth of
        // a pass.
        let settled = (0..QUEUE_SIZE).any(|_| handle() == Left::Nothing);
        prop_assert!(settled, "a thread would be busy for ever");
        let interrupts = driver.interrupts.load(Ordering::Relaxed);
        prop_assert!(interrupts <= 8, "{} interrupts", interrupts);
        if offered.is_stable() {
            compared.set(compared.get() + 1);
            let violation = offered.violation(all(&driver));
            prop_assert_eq!(violation, None, "a byte that was not offered");
        }
        (check.borrow_mut())();
        let table = driver.devices.table();
        let users =
            table.map_or(0, |table| (0..table.pages()).map(|page| table.state(page).users()).sum());
        prop_assert_eq!(users, 0, "pages stay in use");
        Ok(())
    };
    let mut cases = 0;
    while chains.get() < wanted {
        // A runner runs its number of cases only once.
        TestRunner::new(config.clone()).run(&attack(queues), run).unwrap();
        cases += CASES;
    }
    let (compared, chains) = (compared.get(), chains.get());
    println!("\nhostile: {chains} malformed chains in {cases} cases, {compared} cases compared");
    assert!(compared >= cases / 2, "of {cases} cases, only {compared} could be compared");
}

fn bytes(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn disk() -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[7; DISK_BYTES as usize]).unwrap();
    file
}

#[test]
fn a_disk_keeps_its_size() {
    let file = disk();
    let own = file.try_clone().unwrap();
    let block = move || -> Box<dyn Worker> {
        Box::new(Block::new(own.try_clone().unwrap(), DISK_BYTES, false, 0))
    };
    survive(1, block, || assert_eq!(file.metadata().unwrap().len(), DISK_BYTES));
    assert!(bytes(file) != [7; DISK_BYTES as usize], "no attack was close enough to a request");
}

#[test]
fn a_read_only_disk_keeps_its_bytes() {
    let file = disk();
    let own = file.try_clone().unwrap();
    let block = move || -> Box<dyn Worker> {
        Box::new(Block::new(own.try_clone().unwrap(), DISK_BYTES, true, 0))
    };
    survive(1, block, || {});
    assert!(bytes(file) == [7; DISK_BYTES as usize]);
}

#[test]
fn a_console_survives() {
    // Attacks can name much memory, so the output is discarded.
    let sink = || File::options().write(true).open("/dev/null").unwrap();
    survive(2, || Box::new(Console::new(sink())), || {});
}

#[test]
fn a_network_survives() {
    let (link, far) = driver::pipe();
    let (other, _other_far) = driver::pipe();
    let (_, mut pairs) = net::pairs(vec![link, other], MAC);
    let mut pairs = pairs.drain(..1);
    let mut sent = 0;
    let mut drained = |far: &UnixDatagram| {
        let mut packet = [0; 100];
        while far.recv(&mut packet).is_ok() {
            sent += 1;
        }
        // The send fails while the other end has unread packets.
        let _ = far.send(&[3; 60]);
    };
    survive(3, || Box::new(pairs.next().unwrap()), || drained(&far));
    assert!(sent > 0, "no attack was close enough to a packet");
}
