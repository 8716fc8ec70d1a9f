//! A disk's answers to requests.

use std::fs::File;

use unspin_vmm::virtio::Worker;
use unspin_vmm::virtio::block::{Block, F_FLUSH};

use crate::driver::{DATA, Driver};

const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;

/// Makes a request for the first sector. Returns its data and its status.
fn request(block: &mut Block, kind: u32, bytes: u32, writable: bool) -> (Vec<u8>, u8) {
    let mut driver = Driver::new(1, false);
    driver.write(DATA, &kind.to_le_bytes());
    driver.write(DATA + 0x2000, &[0xff]);
    let data = (DATA + 0x1000, bytes, writable);
    driver.chain(0, &[(DATA, 16, false), data, (DATA + 0x2000, 1, true)]);
    block.handle(0, &mut driver.rings);
    (driver.read(DATA + 0x1000, bytes as usize), driver.read(DATA + 0x2000, 1)[0])
}

#[test]
fn each_disk_has_a_serial_number_of_its_own() {
    for (index, expected) in [(0, "unspin-vmm-0"), (30, "unspin-vmm-30")] {
        let mut block = Block::new(tempfile::tempfile().unwrap(), 512, false, index);
        let (id, status) = request(&mut block, GET_ID, 20, true);
        assert_eq!(status, 0);
        assert_eq!(String::from_utf8(id).unwrap(), format!("{expected:\0<20}"));
    }
}

#[test]
fn a_driver_that_never_flushes_has_each_write_flushed() {
    // The file accepts writes but not fdatasync, so an error shows that the device flushed.
    let file = File::options().write(true).open("/dev/null").unwrap();
    let mut block = Block::new(file, 512, false, 0);
    for (features, written) in [(F_FLUSH, 0), (0, 1), (F_FLUSH, 0)] {
        block.start(features).unwrap();
        assert_eq!(request(&mut block, OUT, 512, false).1, written, "features {features:#x}");
        assert_eq!(request(&mut block, FLUSH, 0, false).1, 1);
    }
}
