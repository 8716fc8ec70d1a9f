//! Measures what page access costs a disk of unspin-vmm, without a guest; for `scripts/pages.py`.
//!
//! `device-loop alone ROUNDS MILLISECONDS` calls the device model in one thread, and measures the
//! thread's CPU time. `device-loop threads ROUNDS MILLISECONDS DEPTH` starts the device's thread. A
//! driver gives that thread `DEPTH` requests at a time: it kicks one eventfd and waits for another,
//! which is the interrupt. Both threads share one processor, and the program measures real time.
//!
//! Both modes print `loop POLICY COUNT NANOSECONDS` for each policy once a round, in an order that
//! changes with the round. Each request reads 4 KiB from the disk into memory. Header, data and
//! status have a page each, as bounce buffers may.

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unspin_vmm::access::Policy;
use unspin_vmm::memory::Ram;
use unspin_vmm::virtio::block::Block;
use unspin_vmm::virtio::ring::{Interrupt, Ring};
use unspin_vmm::virtio::thread::{Handle, spawn};
use unspin_vmm::virtio::{QUEUE_SIZE, Worker};
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress};
use vmm_sys_util::eventfd::EventFd;

const PAGE: u64 = 4096;
const AVAILABLE: u64 = PAGE;
const USED: u64 = 2 * PAGE;
/// The guest-physical address of the requests' pages.
const DATA: u64 = 16 * PAGE;
const MEMORY_BYTES: u64 = 16 << 20;
const DISK_BYTES: u64 = 16 << 20;
/// Requests that the driver offers before each call of the device model.
const BATCH: u16 = 8;
const REQUESTS: u16 = 64;
const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// The driver's side of a disk's virtqueue.
struct Driver {
    ram: Ram,
    available: u16,
}

impl Driver {
    fn new(policy: &Policy) -> io::Result<Driver> {
        let fail = Box::new(|error: &io::Error| panic!("{error}"));
        let ram = Ram::new(MEMORY_BYTES, policy, fail).map_err(io::Error::other)?;
        let this = Driver { ram, available: 0 };
        (0..REQUESTS).for_each(|request| this.describe(request));
        Ok(this)
    }

    /// Returns the queue as the device sees it.
    fn ring(&self, interrupt: Interrupt) -> io::Result<Option<Ring>> {
        let mut queue = Queue::new(QUEUE_SIZE).map_err(io::Error::other)?;
        queue.set_desc_table_address(Some(0), None);
        queue.set_avail_ring_address(Some(AVAILABLE as u32), None);
        queue.set_used_ring_address(Some(USED as u32), None);
        queue.set_ready(true);
        Ok(Ring::new(queue, self.ram.devices.clone(), interrupt))
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.ram.guest.write_slice(bytes, GuestAddress(at)).expect("it is memory");
    }

    fn describe(&self, request: u16) {
        let (first, pages) = (3 * request, DATA + 3 * PAGE * u64::from(request));
        let sector = u64::from(request) * 64;
        self.write(pages, &[&[0; 8][..], &sector.to_le_bytes()].concat());
        let pieces = [(16u32, NEXT), (PAGE as u32, NEXT | WRITE), (1, WRITE)];
        for (index, (bytes, flags)) in (0..3u16).zip(pieces) {
            let at = pages + PAGE * u64::from(index);
            let next = if index < 2 { first + index + 1 } else { 0 };
            let fields = [
                &at.to_le_bytes()[..],
                &bytes.to_le_bytes(),
                &flags.to_le_bytes(),
                &next.to_le_bytes(),
            ];
            self.write(16 * u64::from(first + index), &fields.concat());
        }
    }

    /// Offers the next `count` requests.
    fn offer(&mut self, count: u16) {
        for _ in 0..count {
            let slot = u64::from(self.available % QUEUE_SIZE);
            let head = 3 * (self.available % REQUESTS);
            self.write(AVAILABLE + 4 + 2 * slot, &head.to_le_bytes());
            self.available = self.available.wrapping_add(1);
        }
        self.write(AVAILABLE + 2, &self.available.to_le_bytes());
    }

    /// Returns whether the device has returned all requests that the driver offered.
    fn is_served(&self) -> bool {
        let mut index = [0; 2];
        self.ram.guest.read_slice(&mut index, GuestAddress(USED + 2)).expect("it is memory");
        u16::from_le_bytes(index) == self.available
    }
}

/// A disk that serves its requests before `serve` returns.
trait Disk {
    /// Serves some requests, and returns their number.
    fn serve(&mut self) -> u64;

    /// Returns the current time of the clock that the mode measures with.
    fn now(&self) -> Duration;
}

struct Alone {
    driver: Driver,
    block: Block,
    rings: Vec<Option<Ring>>,
}

impl Disk for Alone {
    fn serve(&mut self) -> u64 {
        self.driver.offer(BATCH);
        self.block.handle(0, &mut self.rings);
        u64::from(BATCH)
    }

    /// Returns the CPU time of this thread, which other processes hardly disturb.
    fn now(&self) -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel fills a timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

struct Threads {
    driver: Driver,
    depth: u16,
    kick: EventFd,
    interrupt: EventFd,
    since: Instant,
    /// Stops the device when it is dropped.
    _device: Handle,
}

impl Disk for Threads {
    fn serve(&mut self) -> u64 {
        self.driver.offer(self.depth);
        self.kick.write(1).expect("the device's thread reads it");
        while !self.driver.is_served() {
            self.interrupt.read().expect("an eventfd");
        }
        u64::from(self.depth)
    }

    fn now(&self) -> Duration {
        self.since.elapsed()
    }
}

fn block() -> io::Result<Block> {
    // SAFETY: the name is a C string; the descriptor is new.
    let disk = unsafe { File::from_raw_fd(libc::memfd_create(c"disk".as_ptr(), 0)) };
    disk.set_len(DISK_BYTES)?;
    Ok(Block::new(disk, DISK_BYTES, false, 0))
}

fn alone(policy: &Policy) -> io::Result<Box<dyn Disk>> {
    let driver = Driver::new(policy)?;
    let rings = vec![driver.ring(Arc::new(|| {}))?];
    Ok(Box::new(Alone { driver, block: block()?, rings }))
}

fn threads(policy: &Policy, depth: u16) -> io::Result<Box<dyn Disk>> {
    let driver = Driver::new(policy)?;
    let (kick, interrupt) = (EventFd::new(libc::EFD_NONBLOCK)?, EventFd::new(0)?);
    let raise = interrupt.try_clone()?;
    let ring = driver.ring(Arc::new(move || drop(raise.write(1))))?;
    let device = spawn(Box::new(block()?), vec![kick.try_clone()?], || Ok(()))?;
    device.start(0, vec![ring])?;
    let since = Instant::now();
    Ok(Box::new(Threads { driver, depth, kick, interrupt, since, _device: device }))
}

/// Pins this process to the processor on which it runs. If its threads woke each other on another
/// processor, the figures would depend on how deeply that processor sleeps.
fn stay() -> io::Result<()> {
    // SAFETY: the set is plain memory, and its size is given.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn measure(name: &str, disk: &mut dyn Disk, time: Duration) {
    let (start, mut count) = (disk.now(), 0);
    while disk.now() - start < time {
        count += (0..16).map(|_| disk.serve()).sum::<u64>();
    }
    println!("loop {name} {count} {}", (disk.now() - start).as_nanos());
}

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u16> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let mode = words.first().map(String::as_str).unwrap_or_default();
    let (rounds, milliseconds, depth) = match (mode, &numbers[..]) {
        ("alone", &[rounds, milliseconds]) => (rounds, milliseconds, None),
        ("threads", &[rounds, milliseconds, depth @ 1..=REQUESTS]) => {
            (rounds, milliseconds, Some(depth))
        }
        _ => {
            let usage = "usage: device-loop alone ROUNDS MILLISECONDS, \
                         or device-loop threads ROUNDS MILLISECONDS DEPTH";
            return Err(io::Error::other(usage));
        }
    };
    // Restricted memory has small pages. Unrestricted memory gets small pages as well, so that only
    // the checks differ.
    // SAFETY: the arguments are numbers.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    let arms = [
        ("off-again", Policy::Off),
        ("off", Policy::Off),
        ("request", Policy::Request),
        ("cache", Policy::Cache),
        ("batch", Policy::Batch),
        ("pregrant", Policy::Pregrant(None)),
    ];
    if depth.is_some() {
        stay()?;
    }
    let mut disks = Vec::new();
    for (name, policy) in &arms {
        let disk = depth.map_or_else(|| alone(policy), |depth| threads(policy, depth))?;
        disks.push((*name, disk));
    }
    let count = disks.len();
    for round in 0..usize::from(rounds) {
        for index in 0..count {
            // In six rounds, each policy comes first equally often, and equally often after each
            // other policy.
            let step = if round % 2 == 0 { index } else { count - 1 - index };
            let (name, disk) = &mut disks[(step + round) % count];
            measure(name, &mut **disk, Duration::from_millis(milliseconds.into()));
        }
    }
    Ok(())
}
