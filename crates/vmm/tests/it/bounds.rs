//! How much of a chain, and of a queue, a device handles before it checks for commands.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use unspin_vmm::virtio::block::Block;
use unspin_vmm::virtio::console::Console;
use unspin_vmm::virtio::{Left, Worker};

use crate::driver::{DATA, Driver, INDIRECT, NEXT, QUEUE_BYTES, WRITE};

/// Index of a console's queue for output.
const OUTPUT: usize = 1;
const PIECE: u32 = 64 << 10;
/// The number of pieces of the largest request to a disk.
const PIECES: u64 = 128;

#[test]
fn a_console_writes_64_kib_of_a_chain() {
    let file = tempfile::tempfile().unwrap();
    let mut console = Console::new(file.try_clone().unwrap());
    let mut driver = Driver::new(2, false);
    driver.chain(1, &[(DATA, 40_000, false), (DATA, PIECE, false), (DATA, PIECE, false)]);
    assert_eq!(console.handle(OUTPUT, &mut driver.rings), Left::Nothing);
    assert_eq!(file.metadata().unwrap().len(), 64 << 10);
    assert_eq!(driver.used(1), (1, 0, 0));
}

#[test]
fn a_chain_has_at_most_256_descriptors() {
    for (count, written) in [(256, 256), (257, 0)] {
        let file = tempfile::tempfile().unwrap();
        let mut console = Console::new(file.try_clone().unwrap());
        let mut driver = Driver::new(2, false);
        for index in 0..count {
            let flags = if index + 1 < count { NEXT } else { 0 };
            driver.describe(DATA, index, DATA, 1, flags, index as u16 + 1);
        }
        driver.describe(QUEUE_BYTES, 0, DATA, 16 * count as u32, INDIRECT, 0);
        driver.offer(1, 1, &[0]);
        assert_eq!(console.handle(OUTPUT, &mut driver.rings), Left::Nothing);
        assert_eq!(file.metadata().unwrap().len(), written);
        assert_eq!(driver.used(1), (1, 0, 0));
    }
}

#[test]
fn a_console_drops_output_that_nobody_reads() {
    let (_reader, mut writer) = UnixStream::pair().unwrap();
    // SAFETY: the argument is a number.
    let set = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(set, 0);
    while writer.write(&[0; 4096]).is_ok() {}
    let mut console = Console::new(File::from(OwnedFd::from(writer)));
    let mut driver = Driver::new(2, false);
    driver.chain(1, &[(DATA, 10, false)]);
    assert_eq!(console.handle(OUTPUT, &mut driver.rings), Left::Nothing);
    assert_eq!(driver.used(1), (1, 0, 0));
}

#[test]
fn a_disk_pauses_after_16_mib() {
    let bytes = PIECES * u64::from(PIECE);
    let file = tempfile::tempfile().unwrap();
    file.set_len(bytes).unwrap();
    let mut block = Block::new(file, bytes, false, 0);
    let mut driver = Driver::new(1, false);
    // A header of zeros is a request to read from the first sector.
    driver.describe(0, 0, DATA, 16, NEXT, 1);
    for index in 1..=PIECES {
        driver.describe(0, index, DATA + 4096, PIECE, NEXT | WRITE, index as u16 + 1);
    }
    driver.describe(0, PIECES + 1, DATA + 32, 1, WRITE, 0);
    driver.offer(0, 5, &[0; 5]);
    let mut counts = Vec::new();
    while block.handle(0, &mut driver.rings) == Left::More {
        counts.push(driver.used(0).0);
    }
    assert_eq!((counts, driver.used(0)), (vec![2, 4], (5, 0, bytes as u32 + 1)));
}
