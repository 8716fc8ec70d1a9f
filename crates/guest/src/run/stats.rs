//! The scheduler's statistics, see bpf/sched/run.h.

use unspin_model::scheduler::Stats;

use crate::sense::Plain;

/// `struct run_state`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct State {
    idle_ns: u64,
    off_ns: u64,
    taken: u64,
    t_ns: u64,
    overcommitted: u64,
    usage: u64,
    windows: u64,
    stuck: u64,
    stuck_until_ns: u64,
    cleared: u64,
    online: u64,
    waiting: u64,
}

/// `struct run_counts`: the counts of one vCPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
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
    rest: [u64; 25],
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

/// Returns the vCPUs that are in use.
fn used(contexts: &[CpuContext]) -> Vec<u32> {
    let numbered = (0..).zip(contexts);
    numbered.filter(|(_, context)| context.used != 0).map(|(vcpu, _)| vcpu).collect()
}

impl State {
    /// Adds the scheduler's statistics to those of the control loop, `decided`.
    pub(super) fn stats(&self, contexts: &[CpuContext], decided: Stats) -> Stats {
        let sum = |of: fn(&Counts) -> u64| contexts.iter().map(|context| of(&context.counts)).sum();
        Stats {
            used: self.usage as u32,
            used_vcpus: used(contexts),
            waiting: self.waiting as f64,
            placed: sum(|counts| counts.placed),
            queued: sum(|counts| counts.queued),
            cleared: self.cleared,
            preempted: sum(|counts| counts.preempted),
            pulled: sum(|counts| counts.pulled),
            extended: sum(|counts| counts.extended),
            handed: sum(|counts| counts.handed),
            slept: sum(|counts| counts.slept),
            asked: sum(|counts| counts.asked),
            throttled: sum(|counts| counts.throttled),
            reenqueued: sum(|counts| counts.reenqueued),
            ..decided
        }
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::btf::types::Struct;
    use libbpf_rs::btf::{Btf, HasSize};

    use super::*;

    #[test]
    fn structs_are_as_large_as_the_program_s() {
        let program = concat!(env!("OUT_DIR"), "/run.bpf.o");
        let btf = Btf::from_path(program).expect("types of the program");
        let sizes = [
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
