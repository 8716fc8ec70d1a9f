//! Loads a guest for `scripts/iops.py`: prints a line after each command.
//!
//! The usage is `pump DEVICE ADDRESS COMMAND:MILLISECONDS...`; a command is `read-THREADS`,
//! `write-THREADS` or `send`. Each line is `pump COMMAND COUNT NANOSECONDS`. `read` and `write`
//! count requests of 4 KiB at random offsets of the device. Each thread has one request in flight,
//! and none goes through the page cache. `send` counts UDP datagrams of 1,400 bytes to port 9 of
//! the address.

use std::alloc::{Layout, alloc_zeroed};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::net::UdpSocket;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::thread;
use std::time::{Duration, Instant};

const BLOCK_BYTES: usize = 4096;
const DATAGRAM_BYTES: usize = 1400;

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_DIRECT);
    let mut device = options.open(&words[1])?;
    let blocks = device.seek(SeekFrom::End(0))? / BLOCK_BYTES as u64;
    for word in &words[3..] {
        let Some((command, milliseconds)) = word.split_once(':') else { continue };
        let time = Duration::from_millis(milliseconds.parse().map_err(io::Error::other)?);
        let start = Instant::now();
        let count = match command.split_once('-') {
            Some((way, threads)) => {
                let threads = threads.parse().map_err(io::Error::other)?;
                requests(&device, blocks, threads, way == "write", start, time)
            }
            None => send(&words[2], start, time)?,
        };
        println!("pump {command} {count} {}", start.elapsed().as_nanos());
    }
    Ok(())
}

fn requests(
    device: &File,
    blocks: u64,
    threads: u64,
    write: bool,
    start: Instant,
    time: Duration,
) -> u64 {
    let one = |seed: u64| {
        // SAFETY: the layout has a size; the block is never freed, and only this thread uses it.
        let block: &mut [u8] = unsafe {
            let layout = Layout::from_size_align_unchecked(BLOCK_BYTES, BLOCK_BYTES);
            std::slice::from_raw_parts_mut(alloc_zeroed(layout), BLOCK_BYTES)
        };
        let (mut random, mut count) = (seed, 0);
        while start.elapsed() < time {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (random >> 33) % blocks * BLOCK_BYTES as u64;
            let done = if write {
                device.write_all_at(block, at)
            } else {
                device.read_exact_at(block, at)
            };
            done.expect("the device fails");
            count += 1;
        }
        count
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|seed| scope.spawn(move || one(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
    })
}

fn send(address: &str, start: Instant, time: Duration) -> io::Result<u64> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let target = format!("{address}:9");
    let mut count = 0;
    while start.elapsed() < time {
        count += u64::from(socket.send_to(&[0; DATAGRAM_BYTES], &target).is_ok());
    }
    Ok(count)
}
