//! Decodes events of the sensor, see bpf/sense/sense.h.

use unspin_model::episode::{Owner, OwnerState, Spin, Taken, Wait};
use unspin_model::session::FoundOff;

use super::ring::Raw;

const OFF: u64 = 1;
const SPIN: u64 = 2;
const FLAG_SPIN: u32 = 1;
const FLAG_MUTEX: u32 = 1 << 5;
const FLAG_IPI: u32 = 1 << 31;
const FLAG_FUTEX: u32 = 1 << 30;
const RUNNABLE: u32 = 2;
const ASLEEP: u32 = 3;
const FLAG_ASLEEP: u32 = 1 << 29;

/// An event of the sensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    Off(FoundOff),
    /// A spin, and the return addresses on its stack: the innermost first, ended by a 0.
    Spin(Spin, Vec<u64>),
}

impl Event {
    /// Decodes a raw event; `None` if the event is invalid.
    pub(super) fn of(vcpu: u16, raw: &Raw) -> Option<Event> {
        match raw.kind {
            OFF => off(vcpu, &raw.words),
            SPIN if raw.words[0] <= raw.words[6] => Some(spin(vcpu, &raw.words)),
            _ => None,
        }
    }
}

fn off(vcpu: u16, words: &[u64]) -> Option<Event> {
    let (earliest_ns, latest_ns) = (words[0], words[1]);
    Some(Event::Off(FoundOff {
        vcpu,
        start_ns: earliest_ns.midpoint(latest_ns),
        end_ns: words[2],
        start_error_ns: latest_ns.checked_sub(earliest_ns)? / 2,
        was_idle: words[3] != 0,
    }))
}

/// Returns a word as two fields of 32 bits, in the order in which they lie in memory.
fn halves(word: u64) -> (u32, u32) {
    let bytes = word.to_ne_bytes();
    let half =
        |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    (half(0), half(4))
}

fn spin(vcpu: u16, words: &[u64]) -> Event {
    let (flags, tid) = halves(words[2]);
    let (owner_tid, owner_cpu) = halves(words[3]);
    let (owner_state, _) = halves(words[4]);
    let (taken_ns, taken_cpu) = (words[7], words[8]);
    let asleep = flags & FLAG_ASLEEP != 0;
    let wait = match flags {
        flags if flags & FLAG_IPI != 0 => Wait::Ipi,
        flags if flags & FLAG_FUTEX != 0 => Wait::Futex,
        flags if flags & FLAG_MUTEX != 0 => Wait::Mutex,
        flags if flags & FLAG_SPIN == 0 => Wait::Rwsem,
        _ => Wait::Spinlock,
    };
    let state = match owner_state {
        RUNNABLE => OwnerState::Runnable,
        ASLEEP => OwnerState::Asleep,
        _ => OwnerState::Running,
    };
    let (delay_ns, halted_ns) = if asleep { (words[5], 0) } else { (0, words[5]) };
    let owner = Owner { tid: owner_tid, vcpu: owner_cpu as u16, state, delay_ns };
    let spin = Spin {
        wait,
        lock: words[1],
        asleep,
        vcpu,
        tid,
        begin_ns: words[0],
        end_ns: words[6],
        halted_ns: halted_ns.min(words[6] - words[0]),
        owner: (owner_tid != 0).then_some(owner),
        before: (taken_ns != 0).then_some(Taken { vcpu: taken_cpu as u16, t_ns: taken_ns }),
        site: String::new(),
    };
    Event::Spin(spin, words[9..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(kind: u64, words: &[u64]) -> Raw {
        let mut all = [0; 17];
        all[..words.len()].copy_from_slice(words);
        Raw { seq: 1, kind, words: all }
    }

    #[test]
    fn an_off_interval_begins_in_the_middle_of_its_bounds() {
        let off =
            FoundOff { vcpu: 3, start_ns: 200, end_ns: 900, start_error_ns: 100, was_idle: true };
        assert_eq!(Event::of(3, &raw(OFF, &[100, 300, 900, 1])), Some(Event::Off(off)));
        assert_eq!(Event::of(3, &raw(OFF, &[300, 100, 900, 1])), None);
        assert_eq!(Event::of(3, &raw(SPIN, &[30, 0, 0, 0, 0, 0, 20])), None);
        assert_eq!(Event::of(3, &raw(7, &[])), None);
    }

    #[test]
    fn a_wait_that_slept_is_no_spin() {
        let waits = [(FLAG_FUTEX, Wait::Futex), (FLAG_MUTEX, Wait::Mutex), (1 << 2, Wait::Rwsem)];
        for (flags, wait) in waits {
            let words = [10, 0x1000, u64::from(flags | FLAG_ASLEEP), 0, 2, 0, 20];
            let Some(Event::Spin(spin, _)) = Event::of(1, &raw(SPIN, &words)) else {
                panic!("not a wait");
            };
            assert_eq!((spin.wait, spin.asleep, spin.owner), (wait, true, None));
        }
    }

    #[test]
    fn a_spin_has_an_owner_where_the_kernel_named_one() {
        let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let words =
            [10, 0x1000, two(FLAG_MUTEX | 1, 55), two(66, 2), two(1, 0), 9, 20, 0, 0, 0xf00];
        let Some(Event::Spin(spin, frames)) = Event::of(1, &raw(SPIN, &words)) else {
            panic!("not a spin");
        };
        assert_eq!((spin.wait, spin.vcpu, spin.tid, spin.lock), (Wait::Mutex, 1, 55, 0x1000));
        let owner = Owner { tid: 66, vcpu: 2, state: OwnerState::Running, delay_ns: 0 };
        assert_eq!(spin.owner, Some(owner));
        assert_eq!((spin.before, frames[0], spin.asleep), (None, 0xf00, false));
        assert_eq!(spin.halted_ns, 9);
    }
}
