use std::cell::RefCell;

use super::super::page::Counted;
use super::*;

const GPA: u64 = 0x1a0_0000;

/// A page in an array; an access outside of it panics.
struct Array([u8; 4096]);

impl Page for Array {
    fn read(&mut self, offset: usize, bytes: &mut [u8]) -> io::Result<()> {
        bytes.copy_from_slice(&self.0[offset..][..bytes.len()]);
        Ok(())
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        self.0[offset..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

impl Array {
    fn put(&mut self, field: usize, value: u64) {
        self.0[field..][..8].copy_from_slice(&value.to_le_bytes());
        self.0[VALID + field / 64] |= 1 << (field / 8 % 8);
    }

    fn get(&self, field: usize) -> u64 {
        u64::from_le_bytes(self.0[field..][..8].try_into().unwrap())
    }
}

/// Devices whose reads give 1, 2, 3 and so on, and which record writes.
#[derive(Default)]
struct Fake {
    reads: RefCell<Vec<(Place, usize)>>,
    writes: RefCell<Vec<(Place, Vec<u8>)>>,
}

impl Devices for Fake {
    fn read(&self, place: Place, data: &mut [u8]) {
        let mut reads = self.reads.borrow_mut();
        reads.push((place, data.len()));
        data.fill(reads.len() as u8);
    }

    fn write(&self, place: Place, data: &[u8]) {
        self.writes.borrow_mut().push((place, data.to_vec()));
    }
}

/// Returns a request whose fields are all valid.
fn question(code: u64, one: u64, two: u64) -> Array {
    let mut page = Array([0; 4096]);
    page.put(EXIT_CODE, code);
    page.put(INFO_1, one);
    page.put(INFO_2, two);
    page.put(RAX, 0x1122_3344_5566_7788);
    page.put(SCRATCH, GPA + BUFFER as u64);
    page
}

fn answered(page: &mut Array) -> Fake {
    let fake = Fake::default();
    answer(page, GPA, &fake).unwrap();
    fake
}

fn refusal(mut page: Array) -> u64 {
    let fake = answered(&mut page);
    assert!(fake.reads.borrow().is_empty() && fake.writes.borrow().is_empty());
    assert_eq!(page.get(INFO_1), REFUSED);
    page.get(INFO_2)
}

#[test]
fn ports_are_read_and_written_through_rax() {
    let mut page = question(IOIO, 0x3fd << 16 | 1 << 4 | 1, 0);
    let fake = answered(&mut page);
    assert_eq!(*fake.reads.borrow(), [(Place::Port(0x3fd), 1)]);
    assert_eq!((page.get(RAX), page.get(INFO_1), page.get(INFO_2)), (1, 0, 0));
    // In an answer, only RAX is valid.
    assert_eq!(u128::from_le_bytes(page.0[VALID..][..16].try_into().unwrap()), valid(RAX));

    let mut page = question(IOIO, 0xcf8 << 16 | 4 << 4, 0);
    let fake = answered(&mut page);
    assert_eq!(*fake.writes.borrow(), [(Place::Port(0xcf8), vec![0x88, 0x77, 0x66, 0x55])]);
    assert_eq!(page.get(INFO_1), 0);
}

#[test]
fn strings_and_device_memory_pass_through_the_buffer() {
    let mut page = question(IOIO, 0x1f0 << 16 | 2 << 4 | 1 << 2 | 1, 3);
    assert_eq!(answered(&mut page).reads.borrow().len(), 3);
    assert_eq!(page.0[BUFFER..][..7], [1, 1, 2, 2, 3, 3, 0]);

    let mut page = question(MMIO_READ, 0xe000_0000, 4);
    assert_eq!(*answered(&mut page).reads.borrow(), [(Place::Memory(0xe000_0000), 4)]);
    assert_eq!(page.0[BUFFER..][..5], [1, 1, 1, 1, 0]);

    let mut page = question(MMIO_WRITE, 0xe000_0000, 8);
    // The data is at the very end of the buffer.
    page.put(SCRATCH, GPA + BUFFER_END as u64 - 8);
    page.0[BUFFER_END - 1] = 9;
    let fake = answered(&mut page);
    assert_eq!(fake.writes.borrow()[0].1, [0, 0, 0, 0, 0, 0, 0, 9]);
}

#[test]
fn a_question_that_breaks_the_protocol_gets_the_reason() {
    let mut page = question(IOIO, 0x80 << 16 | 1 << 4, 0);
    page.0[USAGE] = 1;
    assert_eq!(refusal(page), INVALID_USAGE);
    assert_eq!(refusal(question(IOIO, 0x80 << 16 | 3 << 4, 0)), INVALID_INPUT);
    assert_eq!(refusal(question(MMIO_READ, 0xe000_0000, 0)), INVALID_INPUT);
    assert_eq!(refusal(question(MMIO_READ, 0xe000_0000, 9)), INVALID_INPUT);
    assert_eq!(refusal(question(0x72, 0, 0)), INVALID_EVENT);
    // The buffer is one byte too short, and then the product overflows.
    let string = 0x80 << 16 | 4 << 4 | 1 << 2;
    assert_eq!(refusal(question(IOIO, string, 509)), INVALID_SCRATCH);
    assert_eq!(refusal(question(IOIO, string, 1 << 62)), INVALID_SCRATCH);
    for scratch in [0, GPA, GPA + 0x7ff, GPA + 0xff0, GPA + 0x1800, GPA ^ 1 << 47 | 0x800] {
        let mut page = question(MMIO_WRITE, 0xe000_0000, 4);
        page.put(SCRATCH, scratch);
        assert_eq!(refusal(page), INVALID_SCRATCH, "{scratch:#x}");
    }
}

#[test]
fn fields_that_are_not_valid_are_missing() {
    let fields = [EXIT_CODE, INFO_1, INFO_2, SCRATCH];
    let mmio = fields.map(|field| (MMIO_READ, 0xe000_0000, field));
    let port = [EXIT_CODE, INFO_1, INFO_2, RAX].map(|field| (IOIO, 0x80 << 16 | 1 << 4, field));
    for (code, info, field) in mmio.into_iter().chain(port) {
        let mut page = question(code, info, 4);
        page.0[VALID + field / 64] &= !(1 << (field / 8 % 8));
        assert_eq!(refusal(page), MISSING_INPUT, "{code:#x} {field:#x}");
    }
}

/// The cost of `Way::Calls` follows from this number of accesses.
#[test]
fn an_answer_takes_a_few_accesses() {
    let port = 0x80 << 16 | 1 << 4;
    for (code, info, accesses) in [(IOIO, port | 1, 6), (IOIO, port, 5), (MMIO_READ, 0, 6)] {
        let mut page = Counted { page: question(code, info, 4), accesses: 0 };
        answer(&mut page, GPA, &Fake::default()).unwrap();
        assert_eq!(page.accesses, accesses, "{code:#x} {info:#x}");
    }
}

#[test]
fn random_pages_do_not_panic() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..20_000 {
        let mut page = Array([0; 4096]);
        for field in [RAX, EXIT_CODE, INFO_1, INFO_2, SCRATCH] {
            page.put(field, random() >> (random() % 64));
        }
        let codes = [IOIO, MMIO_READ, MMIO_WRITE];
        page.put(EXIT_CODE, codes[round % 3]);
        page.put(SCRATCH, GPA + random() % 0x1100);
        let fake = answered(&mut page);
        let bytes: usize = fake.writes.borrow().iter().map(|(_, data)| data.len()).sum();
        assert!(bytes <= BUFFER_END - BUFFER);
    }
}
