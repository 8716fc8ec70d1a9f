//! The scheduler's figures, see bpf/run.h.

use std::io;
use std::os::fd::BorrowedFd;

use unspin_model::scheduler::Stats;
use unspin_policy::pack::{Facts, Pack};
use unspin_policy::steal_governor::StealGovernor;

use crate::sense::{Plain, Shared};

/// `struct run_state`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct State {
    pack: Pack,
    governor: StealGovernor,
    facts: Facts,
    idle_ns: u64,
    off_ns: u64,
    spin_ns: u64,
    page_faults: u64,
    given_up: u64,
    wakes: u64,
    woken: u64,
    t_ns: u64,
    usage: u64,
    windows: u64,
    used_sum: u64,
    placed: u64,
    queued: u64,
    cleared: u64,
    preempted: u64,
    taken: u64,
    taken_before: u64,
    pulled: u64,
    extended: u64,
    handed: u64,
    slept: u64,
    asked: u64,
    throttled: u64,
    online: u64,
    counted: u64,
    waiting: u64,
}

/// `struct run_end`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) kind: i32,
    unused: u32,
    pub(super) code: i64,
    pub(super) reason: [u8; 128],
    pub(super) message: [u8; 512],
}

/// Which vCPUs are in use: `used`, the first word of each `struct seat`.
pub(super) struct Seats {
    words: Shared<u64>,
    words_each: usize,
}

// SAFETY: an integer.
unsafe impl Plain for u32 {}

impl Seats {
    /// Of so many vCPUs, with so many bytes each.
    pub(super) fn map(map: BorrowedFd<'_>, vcpus: usize, bytes: u32) -> io::Result<Seats> {
        // The kernel pads the values of an array to whole words.
        let words_each = bytes.div_ceil(8) as usize;
        Ok(Seats { words: Shared::map(map, vcpus * words_each)?, words_each })
    }

    pub(super) fn used(&self) -> Vec<u32> {
        let vcpus = self.words.count() / self.words_each;
        let is_used = |vcpu: &usize| self.words.read::<u32>(vcpu * self.words_each, 0) != 0;
        (0..vcpus).filter(is_used).map(|vcpu| vcpu as u32).collect()
    }
}

impl State {
    pub(super) fn stats(&self, late_ns: u64) -> Stats {
        let vcpus = |thousandths: u32| f64::from(thousandths) / 1e3;
        let (state, pack, facts) = (self, &self.pack, &self.facts);
        Stats {
            late_us: late_ns / 1_000,
            vcpus: pack.vcpus,
            used: state.usage as u32,
            trial: pack.phase != 0,
            on: vcpus(facts.on_m),
            off: vcpus(facts.off_m),
            spinning: vcpus(facts.spin_m),
            waiting: vcpus(facts.queued_m),
            used_mean: state.used_sum as f64 / state.windows.max(1) as f64,
            off_s: state.off_ns as f64 / 1e9,
            spin_s: state.spin_ns as f64 / 1e9,
            page_faults: state.page_faults,
            given_up: state.given_up,
            trials_fewer: [pack.trials_fewer, pack.helped_fewer],
            trials_more: [pack.trials_more, pack.helped_more],
            placed: state.placed,
            queued: state.queued,
            cleared: state.cleared,
            preempted: state.preempted,
            pulled: state.pulled,
            extended: state.extended,
            handed: state.handed,
            slept: state.slept,
            asked: state.asked,
            throttled: state.throttled,
            ..Stats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::btf::types::Struct;
    use libbpf_rs::btf::{Btf, HasSize};

    use unspin_policy::pack::Sums;

    use super::*;

    #[test]
    fn structs_are_as_large_as_the_program_s() {
        let program = concat!(env!("OUT_DIR"), "/run.bpf.o");
        let btf = Btf::from_path(program).expect("types of the program");
        let sizes = [
            ("pack", size_of::<Pack>()),
            ("pack_sums", size_of::<Sums>()),
            ("pack_facts", size_of::<Facts>()),
            ("steal_governor", size_of::<StealGovernor>()),
            ("run_state", size_of::<State>()),
            ("run_end", size_of::<End>()),
        ];
        for (name, size) in sizes {
            let of_program = btf.type_by_name::<Struct<'_>>(name).expect(name);
            assert_eq!(of_program.size(), size, "struct {name}");
        }
    }
}
