//! A disk's device model alone, without a guest, for `scripts/pages.py`: what page access costs it.
//!
//! `device-loop ROUNDS MILLISECONDS` prints `loop POLICY COUNT NANOSECONDS` for each policy once a
//! round, in an order that changes with the round. The time is CPU time of the thread. Requests
//! read 4 KiB from memory. Header, data and status have a page each, as bounce buffers may.

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::sync::Arc;
use std::time::Duration;

use unspin_vmm::access::Policy;
use unspin_vmm::memory::Ram;
use unspin_vmm::virtio::block::Block;
use unspin_vmm::virtio::ring::Ring;
use unspin_vmm::virtio::{QUEUE_SIZE, Worker};
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress};

const PAGE: u64 = 4096;
const AVAILABLE: u64 = PAGE;
const USED: u64 = 2 * PAGE;
/// Where requests have their pages.
const DATA: u64 = 16 * PAGE;
const MEMORY_BYTES: u64 = 16 << 20;
const DISK_BYTES: u64 = 16 << 20;
/// Requests that a notification finds.
const BATCH: u16 = 8;
const REQUESTS: u16 = 64;
const NEXT: u16 = 1;
const WRITE: u16 = 2;

struct Loop {
    name: &'static str,
    ram: Ram,
    block: Block,
    rings: Vec<Option<Ring>>,
    available: u16,
}

impl Loop {
    fn new(name: &'static str, policy: &Policy) -> io::Result<Loop> {
        // SAFETY: the name is a C string; the descriptor is new.
        let disk = unsafe { File::from_raw_fd(libc::memfd_create(c"disk".as_ptr(), 0)) };
        disk.set_len(DISK_BYTES)?;
        let fail = Box::new(|error: &io::Error| panic!("{error}"));
        let ram = Ram::new(MEMORY_BYTES, policy, fail).map_err(io::Error::other)?;
        let mut queue = Queue::new(QUEUE_SIZE).map_err(io::Error::other)?;
        queue.set_desc_table_address(Some(0), None);
        queue.set_avail_ring_address(Some(AVAILABLE as u32), None);
        queue.set_used_ring_address(Some(USED as u32), None);
        queue.set_ready(true);
        let ring = Ring::new(queue, ram.devices.clone(), Arc::new(|| {}));
        let block = Block::new(disk, DISK_BYTES, false, 0);
        let this = Loop { name, ram, block, rings: vec![ring], available: 0 };
        (0..REQUESTS).for_each(|request| this.describe(request));
        Ok(this)
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

    fn serve(&mut self) {
        for _ in 0..BATCH {
            let slot = u64::from(self.available % QUEUE_SIZE);
            let head = 3 * (self.available % REQUESTS);
            self.write(AVAILABLE + 4 + 2 * slot, &head.to_le_bytes());
            self.available = self.available.wrapping_add(1);
        }
        self.write(AVAILABLE + 2, &self.available.to_le_bytes());
        self.block.handle(0, &mut self.rings);
    }

    fn measure(&mut self, time: Duration) {
        let (start, mut count) = (cpu_time(), 0u64);
        while cpu_time() - start < time {
            (0..16).for_each(|_| self.serve());
            count += 16 * u64::from(BATCH);
        }
        println!("loop {} {count} {}", self.name, (cpu_time() - start).as_nanos());
    }
}

/// What this thread has used of processors, so that other processes count little.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() -> io::Result<()> {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [rounds, milliseconds] = numbers[..] else {
        return Err(io::Error::other("usage: device-loop ROUNDS MILLISECONDS"));
    };
    // Restricted memory has small pages; so has the other one then, and the checks alone differ.
    // SAFETY: the arguments are numbers.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    let mut loops = vec![Loop::new("off-again", &Policy::Off)?];
    for policy in
        [Policy::Off, Policy::Request, Policy::Cache, Policy::Batch, Policy::Pregrant(None)]
    {
        loops.push(Loop::new(policy.name(), &policy)?);
    }
    for round in 0..rounds as usize {
        let count = loops.len();
        for index in 0..count {
            // Each policy comes first, and after each other one, equally often in six rounds.
            let step = if round % 2 == 0 { index } else { count - 1 - index };
            loops[(step + round) % count].measure(Duration::from_millis(milliseconds));
        }
    }
    Ok(())
}
