//! The PCI transport and device models under a well-behaved driver, and the transport under a
//! driver that makes arbitrary accesses.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use unspin_vmm::machine::{End, PanicEnds};
use unspin_vmm::memory::{self, Memory};
use unspin_vmm::pci::msix::{self, Line, Msix};
use unspin_vmm::pci::routes::Message;
use unspin_vmm::pci::virtio::{Function, NOTIFY, NOTIFY_BYTES, Part};
use unspin_vmm::sandbox::Kind;
use unspin_vmm::virtio::block::Block;
use unspin_vmm::virtio::console::Console;
use unspin_vmm::virtio::ring::Ring;
use unspin_vmm::virtio::tap::Link;
use unspin_vmm::virtio::{Description, Left, Worker, net, thread};
use vm_memory::{Bytes, GuestAddress};
use vmm_sys_util::eventfd::EventFd;

use crate::driver::{self, DATA, Driver};

struct Nobody;

impl Line for Nobody {
    fn set(&self, _: Message) {}
    fn raise(&self) {}
}

/// A line that counts its interrupts.
struct Counted(Arc<AtomicU32>);

impl Line for Counted {
    fn set(&self, _: Message) {}

    fn raise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn disk() -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&(0..2048u32).flat_map(|n| (n as u8).to_le_bytes()).collect::<Vec<_>>())
        .unwrap();
    file
}

/// Returns a disk of 2048 bytes with its thread, its memory, and the VM's end, which a panic sets.
fn function() -> (Function, Memory, Arc<End>) {
    function_with(Box::new(Nobody))
}

/// Returns such a disk, with `line` as the line of its second vector.
fn function_with(line: Box<dyn Line>) -> (Function, Memory, Arc<End>) {
    let memory = memory::new(driver::MEMORY_BYTES).unwrap();
    let block = Block::new(disk(), 2048, false, 0);
    let description = block.description();
    let kick = EventFd::new(libc::EFD_NONBLOCK).unwrap();
    let own = vec![kick.try_clone().unwrap()];
    let end = Arc::new(End::new(EventFd::new(libc::EFD_NONBLOCK).unwrap()));
    let guard = PanicEnds(Arc::clone(&end));
    let handle = thread::spawn(Box::new(block), own, || Ok(guard)).unwrap();
    let parts = vec![Part { handle, queues: vec![0] }];
    let msix = Arc::new(Msix::new(vec![Box::new(Nobody), line]));
    let bar = 0xc000_0000;
    let function = Function::new(bar, description, parts, vec![kick], msix, memory.clone());
    (function, memory, end)
}

fn word(function: &mut Function, at: usize) -> u32 {
    let mut bytes = [0; 4];
    function.read(at, &mut bytes);
    u32::from_le_bytes(bytes)
}

/// Negotiates features, sets up `queues` queues in 16 KiB each, and becomes ready. Returns the
/// status.
fn start(function: &mut Function, queues: u16) -> u32 {
    for status in [1, 3] {
        function.write(20, &[status]);
    }
    for select in [0u32, 1] {
        function.write(0, &select.to_le_bytes());
        let offered = word(function, 4);
        function.write(8, &select.to_le_bytes());
        function.write(12, &offered.to_le_bytes());
    }
    function.write(20, &[11]);
    assert_eq!(word(function, 20) & 0xff, 11);
    for queue in 0..queues {
        function.write(22, &queue.to_le_bytes());
        for (at, part) in [(32, 0u64), (40, 0x1000), (48, 0x2000)] {
            let address = u64::from(queue) * driver::QUEUE_BYTES + part;
            function.write(at, &address.to_le_bytes());
        }
        function.write(26, &1u16.to_le_bytes());
        function.write(28, &1u16.to_le_bytes());
    }
    function.write(20, &[15]);
    word(function, 20) & 0xff
}

fn set_up(function: &mut Function) {
    assert_eq!(start(function, 1), 15);
}

#[test]
fn a_driver_reads_a_sector_resets_and_reads_again() {
    let (mut function, memory, _) = function();
    assert_eq!(word(&mut function, 0x1000), 4);
    let devices = memory.clone().into();
    let driver = Driver { memory, devices, rings: vec![], interrupts: Arc::default() };
    for round in 0..2 {
        driver.offer(0, 0, &[]);
        driver.write(0x2000, &[0; 16]);
        set_up(&mut function);
        driver.write(DATA, &[0; 16]);
        driver.write(DATA + 8, &1u64.to_le_bytes());
        driver.write(DATA + 0x1000, &[0xff; 513]);
        let pieces = [(DATA, 16, false), (DATA + 0x1000, 512, true), (DATA + 0x1200, 1, true)];
        driver.chain(0, &pieces);
        function.write(NOTIFY as usize, &[0, 0]);
        let start = Instant::now();
        while driver.used(0).0 == 0 && start.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert_eq!(driver.used(0), (1, 0, 513), "round {round}");
        let data = driver.read(DATA + 0x1000, 513);
        assert!((0..512).all(|at| data[at] == (at % 256) as u8) && data[512] == 0);
        function.write(20, &[0]);
        assert_eq!(word(&mut function, 20) & 0xff, 0);
    }
}

#[test]
fn a_driver_without_the_standards_feature_is_not_accepted() {
    let (mut function, _memory, _) = function();
    function.write(20, &[3]);
    function.write(20, &[11]);
    assert_eq!(word(&mut function, 20) & 0xff, 3);
    function.write(20, &[7]);
    assert_eq!(word(&mut function, 20) & 0xff, 3);
}

/// Returns the offset of a capability in configuration space.
fn capability(function: &mut Function, id: u8) -> usize {
    let mut byte = |at: usize| {
        let mut byte = [0];
        function.read_config(at, &mut byte);
        byte[0]
    };
    let mut at = usize::from(byte(0x34));
    while byte(at) != id {
        at = usize::from(byte(at + 1));
    }
    at
}

/// An interrupt for configuration changes notifies the driver.
#[test]
fn a_queue_outside_of_memory_breaks_the_device_until_a_reset() {
    let raised: Arc<AtomicU32> = Arc::default();
    let (mut function, _memory, _) = function_with(Box::new(Counted(Arc::clone(&raised))));
    let control = capability(&mut function, msix::CAPABILITY) + 2;
    function.write_config(control, &msix::ENABLE.to_le_bytes());
    // Vector 1 is unmasked.
    function.write(0x3000 + msix::ENTRY_BYTES + 12, &0u32.to_le_bytes());
    function.write(16, &1u16.to_le_bytes());
    function.write(8, &1u32.to_le_bytes());
    function.write(12, &3u32.to_le_bytes());
    function.write(20, &[11]);
    function.write(48, &0x7000_0000u64.to_le_bytes());
    function.write(28, &1u16.to_le_bytes());
    function.write(20, &[15]);
    assert_eq!(word(&mut function, 20) & 0xff, 0x4f);
    assert_eq!(raised.load(Ordering::Relaxed), 1);
    function.write(20, &[0]);
    set_up(&mut function);
}

/// A worker that may fail to start. It counts its calls with a ring.
struct Fussy {
    fails: bool,
    served: Arc<AtomicU32>,
}

impl Worker for Fussy {
    fn kind(&self) -> Kind {
        Kind::Net
    }

    fn start(&mut self, _: u64) -> io::Result<()> {
        if self.fails { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
    }

    fn handle(&mut self, queue: usize, rings: &mut [Option<Ring>]) -> Left {
        let served = rings[queue].iter().count() as u32;
        self.served.fetch_add(served, Ordering::Relaxed);
        Left::Nothing
    }
}

#[test]
fn a_device_that_failed_to_start_serves_no_queue() {
    let kick = || EventFd::new(libc::EFD_NONBLOCK).unwrap();
    let kicks = [kick(), kick()];
    let served: [Arc<AtomicU32>; 2] = Default::default();
    let parts = [false, true].into_iter().enumerate().map(|(index, fails)| {
        let worker = Fussy { fails, served: Arc::clone(&served[index]) };
        let own = vec![kicks[index].try_clone().unwrap()];
        let handle = thread::spawn(Box::new(worker), own, || Ok(())).unwrap();
        Part { handle, queues: vec![index] }
    });
    let parts: Vec<Part> = parts.collect();
    let features = Console::description().features;
    let description = Description { features, queues: 2, ..Console::description() };
    let msix = Arc::new(Msix::new((0..3).map(|_| Box::new(Nobody) as Box<dyn Line>).collect()));
    let memory = memory::new(driver::MEMORY_BYTES).unwrap();
    let mut function = Function::new(0xc000_0000, description, parts, kicks.into(), msix, memory);
    assert_eq!(start(&mut function, 2), 0x4f);
    let counts = || served.each_ref().map(|count| count.load(Ordering::Relaxed));
    let before = counts();
    for queue in 0..2 {
        function.write((NOTIFY + queue * NOTIFY_BYTES) as usize, &[0, 0]);
    }
    drop(function);
    assert_eq!((counts(), before[1]), (before, 0));
}

/// Without VIRTIO_F_EVENT_IDX, the driver suppresses interrupts by a flag (virtio 1.2, 2.7.7).
#[test]
fn a_driver_hears_of_chains_unless_it_spares_itself_that() {
    let mut console = Console::new(File::options().write(true).open("/dev/null").unwrap());
    let mut handle = |driver: &mut Driver| {
        console.handle(1, &mut driver.rings);
        (driver.used(1).0, driver.interrupts.load(Ordering::Relaxed))
    };
    let mut driver = Driver::new(2, false);
    assert_eq!(handle(&mut driver), (0, 0));
    driver.chain(1, &[(DATA, 8, false)]);
    assert_eq!(handle(&mut driver), (1, 1));
    driver.write(driver::QUEUE_BYTES + driver::AVAILABLE, &1u16.to_le_bytes());
    driver.offer(1, 2, &[0, 0]);
    assert_eq!(handle(&mut driver), (2, 1));
}

#[test]
fn a_packet_goes_each_way() {
    let (link, far) = driver::pipe();
    let (description, mut pairs) = net::pairs(vec![link], [2, 3, 4, 5, 6, 7]);
    assert_eq!((&description.config[..6], description.queues), (&[2, 3, 4, 5, 6, 7][..], 2));
    let mut driver = Driver::new(2, true);
    let packet = [[0; 12], [9; 12], [8; 12]].concat();
    driver.write(DATA, &packet);
    driver.chain(1, &[(DATA, 20, false), (DATA + 20, 16, false)]);
    pairs[0].handle(1, &mut driver.rings);
    let mut received = [0; 100];
    assert_eq!(far.recv(&mut received).unwrap(), 36);
    assert_eq!(received[..36], packet);
    far.send(&packet).unwrap();
    driver.chain(0, &[(DATA + 0x1000, 11, true), (DATA + 0x2000, 200, true)]);
    pairs[0].ready(&mut driver.rings);
    assert_eq!(driver.used(0), (1, 0, 36));
    // The header's last field says that the packet is in one chain.
    assert_eq!(driver.read(DATA + 0x1000, 11), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(driver.read(DATA + 0x2000, 13), [&[0][..], &[9; 12]].concat());
}

/// A link whose reads of less than 128 bytes fail with EINVAL, like the reads of a tap interface
/// that drops a packet.
struct Dropping(OwnedFd);

impl Link for Dropping {
    fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn set_offload(&self, _: u32) -> io::Result<()> {
        Ok(())
    }

    fn set_enabled(&self, _: bool) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn packets_behind_a_dropped_one_are_looked_for() {
    // SAFETY: a set of signals is plain data, which a call fills, and the descriptor is new.
    let signals = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        OwnedFd::from_raw_fd(libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC))
    };
    let (_, mut pairs) = net::pairs(vec![Box::new(Dropping(signals))], [2, 3, 4, 5, 6, 7]);
    let mut driver = Driver::new(2, true);
    driver.chain(0, &[(DATA, 64, true)]);
    assert_eq!(pairs[0].ready(&mut driver.rings), Left::More);
    driver.chain(0, &[(DATA, 128, true)]);
    assert_eq!(pairs[0].ready(&mut driver.rings), Left::Nothing);
    assert_eq!(driver.used(0).0, 0);
}

/// Without VIRTIO_NET_F_MQ, the control queue follows the only pair (virtio 1.2, 5.1.2).
#[test]
fn a_driver_of_one_pair_finds_its_control_queue() {
    const MQ: u64 = 1 << 22;
    let links = [driver::pipe(), driver::pipe()].map(|(link, _)| link);
    let (_, mut pairs) = net::pairs(links.into(), [2, 3, 4, 5, 6, 7]);
    let mut answer = |features| {
        let mut driver = Driver::new(1, true);
        driver.write(DATA, &[4, 0, 1, 0, 0xff]);
        driver.chain(0, &[(DATA, 4, false), (DATA + 4, 1, true)]);
        pairs[1].start(features).unwrap();
        pairs[1].handle(0, &mut driver.rings);
        (driver.used(0), driver.read(DATA + 4, 1))
    };
    // The number of pairs cannot be set, so the answer is an error.
    assert_eq!(answer(0), ((1, 0, 1), vec![1]));
    // With more pairs, that queue receives packets, and the buffer is too small for a packet.
    assert_eq!(answer(MQ), ((1, 0, 0), vec![0xff]));
}

#[test]
fn the_driver_sets_how_many_pairs_are_in_use() {
    const MQ: u64 = 1 << 22;
    let pipes = [driver::watched_pipe(), driver::watched_pipe()];
    let enabled = pipes.each_ref().map(|(_, _, enabled)| Arc::clone(enabled));
    let links = pipes.map(|(link, _, _)| link);
    let (_, mut pairs) = net::pairs(links.into(), [2, 3, 4, 5, 6, 7]);
    pairs[0].start(MQ).unwrap();
    let mut set = |count: u8| {
        let mut driver = Driver::new(3, true);
        driver.write(DATA, &[4, 0, count, 0, 0xff]);
        driver.chain(2, &[(DATA, 4, false), (DATA + 4, 1, true)]);
        pairs[0].handle(2, &mut driver.rings);
        assert_eq!(driver.used(2), (1, 0, 1));
        let enabled = enabled.each_ref().map(|enabled| enabled.load(Ordering::Relaxed));
        (driver.read(DATA + 4, 1)[0], enabled)
    };
    // A refused number changes nothing.
    assert_eq!(set(0), (1, [true, false]));
    assert_eq!(set(1), (0, [true, false]));
    assert_eq!(set(2), (0, [true, true]));
    assert_eq!(set(3), (1, [true, true]));
    assert_eq!(set(1), (0, [true, false]));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_access_is_survived(
        started in any::<bool>(),
        accesses in prop::collection::vec(
            (any::<[bool; 3]>(), 0..0x4100usize, 1..=8usize, any::<u64>()),
            1..200,
        )
    ) {
        let (mut function, memory, end) = function();
        memory.write_slice(&[0xff; 0x4000], GuestAddress(0)).unwrap();
        if started {
            set_up(&mut function);
        }
        for ([config, write, common], at, bytes, value) in accesses {
            // Half of the accesses are to the common configuration, or to capabilities.
            let at = if common { at % 60 } else { at };
            let mut data = value.to_le_bytes();
            match (config, write) {
                (true, true) => function.write_config(at % 256, &data[..bytes]),
                (true, false) => function.read_config(at % 256, &mut data[..bytes]),
                (false, true) => function.write(at, &data[..bytes]),
                (false, false) => function.read(at, &mut data[..bytes]),
            }
        }
        // The drop waits for the thread.
        drop(function);
        prop_assert_eq!(end.get(), None);
    }
}
