//! The scheduler's figures, see bpf/sched/run.h.

use unspin_model::scheduler::Stats;
use unspin_policy::pack::{Facts, Pack};
use unspin_policy::steal_governor::StealGovernor;

use crate::sense::Plain;

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
    missing: u64,
    woken: u64,
    taken: u64,
    t_ns: u64,
    usage: u64,
    windows: u64,
    used_sum: u64,
    cleared: u64,
    online: u64,
    waiting: u64,
}

/// Bits of [`State::missing`], `enum run_missing`.
const NO_PAGE_FAULTS: u64 = 1;
const NO_GIVEN_UP: u64 = 2;

/// `struct run_counts`: what one vCPU's programs have done.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    woken: u64,
    placed: u64,
    queued: u64,
    preempted: u64,
    taken: u64,
    pulled: u64,
    extended: u64,
    handed: u64,
    slept: u64,
    asked: u64,
    throttled: u64,
    reenqueued: u64,
}

/// `struct cpu_ctx`, of which only the beginning is read.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CpuContext {
    used: u32,
    online: u32,
    counts: Counts,
    rest: [u64; 22],
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

// SAFETY: integers only.
unsafe impl Plain for CpuContext {}

/// Which vCPUs are in use.
fn used(contexts: &[CpuContext]) -> Vec<u32> {
    let numbered = (0..).zip(contexts);
    numbered.filter(|(_, context)| context.used != 0).map(|(vcpu, _)| vcpu).collect()
}

impl State {
    pub(super) fn stats(&self, contexts: &[CpuContext], late_ns: u64) -> Stats {
        let sum = |of: fn(&Counts) -> u64| contexts.iter().map(|context| of(&context.counts)).sum();
        let counted = |count, missing| (self.missing & missing == 0).then_some(count);
        let vcpus = |thousandths: u32| f64::from(thousandths) / 1e3;
        let (state, pack, facts) = (self, &self.pack, &self.facts);
        Stats {
            late_us: late_ns / 1_000,
            vcpus: pack.vcpus,
            used: state.usage as u32,
            used_vcpus: used(contexts),
            trial: pack.phase != 0,
            on: vcpus(facts.on_m),
            off: vcpus(facts.off_m),
            spinning: vcpus(facts.spin_m),
            waiting: vcpus(facts.queued_m),
            used_mean: state.used_sum as f64 / state.windows.max(1) as f64,
            off_s: state.off_ns as f64 / 1e9,
            spin_s: state.spin_ns as f64 / 1e9,
            page_faults: counted(state.page_faults, NO_PAGE_FAULTS),
            given_up: counted(state.given_up, NO_GIVEN_UP),
            trials_fewer: [pack.trials_fewer, pack.helped_fewer],
            trials_more: [pack.trials_more, pack.helped_more],
            placed: sum(|counts| counts.placed),
            queued: sum(|counts| counts.queued),
            cleared: state.cleared,
            preempted: sum(|counts| counts.preempted),
            pulled: sum(|counts| counts.pulled),
            extended: sum(|counts| counts.extended),
            handed: sum(|counts| counts.handed),
            slept: sum(|counts| counts.slept),
            asked: sum(|counts| counts.asked),
            throttled: sum(|counts| counts.throttled),
            reenqueued: sum(|counts| counts.reenqueued),
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
            ("run_counts", size_of::<Counts>()),
            ("cpu_ctx", size_of::<CpuContext>()),
        ];
        for (name, size) in sizes {
            let of_program = btf.type_by_name::<Struct<'_>>(name).expect(name);
            assert_eq!(of_program.size(), size, "struct {name}");
        }
    }
}
