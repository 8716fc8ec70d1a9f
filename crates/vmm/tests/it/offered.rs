//! The memory that a driver lets a device write, by a second implementation of the rules.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::driver::{AVAILABLE, INDIRECT, NEXT, QUEUE_BYTES, USED, WRITE};

const QUEUE_SIZE: u64 = 256;
const DESCRIPTOR_BYTES: u64 = 16;
/// Flags, index, an entry of 8 bytes for each descriptor, and the event.
const USED_BYTES: u64 = 4 + 8 * QUEUE_SIZE + 2;
/// The most descriptors of a table that a device follows.
const STEPS_MAX: usize = QUEUE_SIZE as usize + 1;

/// The ranges of a guest's memory that a driver offers.
pub struct Offered {
    malformed: u32,
    before: Vec<u8>,
    /// Used rings, and the buffers that chains let the device write.
    writable: Vec<Range<u64>>,
    /// The memory from which the device learns the writable ranges.
    tables: Vec<Range<u64>>,
}

impl Offered {
    /// Computes the offer of one queue of a driver with `queues` queues. `memory` is all of its
    /// memory.
    pub fn new(memory: Vec<u8>, queues: u64, queue: u64) -> Offered {
        let bases = (0..queues).map(|index| index * QUEUE_BYTES);
        let used = bases.clone().map(|base| base + USED..base + USED + USED_BYTES);
        let tables = bases.map(|base| base..base + USED);
        let mut offered = Offered {
            malformed: 0,
            before: memory,
            writable: used.collect(),
            tables: tables.collect(),
        };
        let base = queue * QUEUE_BYTES;
        let count = u64::from(offered.word(base + AVAILABLE + 2));
        // An index that is further ahead than the queue's length offers nothing.
        let slots = if count > QUEUE_SIZE { 0 } else { count };
        let head = |slot| offered.word(base + AVAILABLE + 4 + 2 * slot);
        let mut heads: BTreeMap<u16, u32> = BTreeMap::new();
        (0..slots).for_each(|slot| *heads.entry(head(slot)).or_default() += 1);
        for (head, times) in heads {
            if !offered.walk(base, head, QUEUE_SIZE, false, &mut false) {
                offered.malformed += times;
            }
        }
        offered
    }

    /// Returns the number of chains that break the rules. One of them may be offered several times.
    pub fn malformed(&self) -> u32 {
        self.malformed
    }

    fn word(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.bytes(at).unwrap())
    }

    fn bytes<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let at = usize::try_from(at).ok()?;
        self.before.get(at..at.checked_add(N)?)?.try_into().ok()
    }

    /// Follows a chain in a table of `entries` entries, and returns whether it keeps the rules.
    /// `written` is whether the chain has let the device write so far.
    fn walk(
        &mut self,
        table: u64,
        head: u16,
        entries: u64,
        indirect: bool,
        written: &mut bool,
    ) -> bool {
        let (mut index, mut keeps) = (u64::from(head), true);
        for _ in 0..STEPS_MAX {
            let place = table.saturating_add(DESCRIPTOR_BYTES * index);
            let Some(descriptor) = self.bytes::<16>(place).filter(|_| index < entries) else {
                return false;
            };
            let half = |at: usize| u16::from_le_bytes([descriptor[at], descriptor[at + 1]]);
            let at = u64::from_le_bytes(descriptor[..8].try_into().unwrap());
            let bytes = u64::from(u32::from_le_bytes(descriptor[8..12].try_into().unwrap()));
            let (flags, range) = (half(12), at..at.saturating_add(bytes));
            if flags & INDIRECT != 0 {
                if indirect {
                    return false;
                }
                self.tables.push(range);
                let follows = self.walk(at, 0, bytes / DESCRIPTOR_BYTES, true, written);
                return keeps && follows && bytes % DESCRIPTOR_BYTES == 0;
            }
            keeps &= bytes == 0 || range.end <= self.before.len() as u64;
            if flags & WRITE != 0 {
                *written |= bytes > 0;
                self.writable.push(range);
            } else {
                keeps &= !*written;
            }
            if flags & NEXT == 0 {
                return keeps;
            }
            index = half(14).into();
        }
        false
    }

    /// Returns whether the offer stays the same, whatever the device writes.
    pub fn is_stable(&self) -> bool {
        let apart = |a: &Range<u64>, b: &Range<u64>| a.end <= b.start || b.end <= a.start;
        let mut tables = self.tables.iter();
        tables.all(|table| self.writable.iter().all(|range| apart(table, range)))
    }

    /// Returns the first byte that the device wrote without an offer.
    pub fn violation(&self, mut after: Vec<u8>) -> Option<usize> {
        for range in &self.writable {
            let [start, end] =
                [range.start, range.end].map(|at| at.min(after.len() as u64) as usize);
            after[start..end].copy_from_slice(&self.before[start..end]);
        }
        if after == self.before {
            return None;
        }
        after.iter().zip(&self.before).position(|(after, before)| after != before)
    }
}

#[test]
fn a_byte_beside_a_chain_is_a_violation() {
    let driver = crate::driver::Driver::new(1, false);
    let all = || driver.read(0, crate::driver::MEMORY_BYTES as usize);
    driver.chain(0, &[(0x1_0000, 8, false), (0x1_0010, 8, true)]);
    let offered = Offered::new(all(), 1, 0);
    assert!(offered.is_stable() && offered.malformed() == 0);
    driver.write(0x1_0010, &[1; 8]);
    driver.write(USED, &[1; USED_BYTES as usize]);
    assert_eq!(offered.violation(all()), None);
    driver.write(0x1_0018, &[1]);
    assert_eq!(offered.violation(all()), Some(0x1_0018));
    driver.write(0x1_0007, &[1]);
    assert_eq!(offered.violation(all()), Some(0x1_0007));
    driver.chain(0, &[(0x1_0000, 8, true), (0x1_0010, 8, false)]);
    assert_eq!(Offered::new(all(), 1, 0).malformed(), 1);
    driver.chain(0, &[(0x1_0000, 8, false), (8, 8, true)]);
    assert!(!Offered::new(all(), 1, 0).is_stable());
}
