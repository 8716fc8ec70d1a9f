//! Finds the function that wanted a lock: the first one on the stack that is not part of locking.

use unspin_model::episode::Wait;
use unspin_trace::storms::Symbols;

use crate::spinning;

/// Parts of the names of functions that lead into a lock, or observe it.
const LOCKING: [&str; 12] = [
    "spin_lock",
    "read_lock",
    "write_lock",
    "mutex_lock",
    "mutex_trylock",
    "mutex_optimistic",
    "slowpath",
    "contention",
    "smp_call_function",
    "on_each_cpu",
    "bpf_",
    "trace_",
];

/// Functions between a mutex waiter that yields and its task switch. Such a waiter never wants its
/// lock in one of them.
const SWITCHING: [&str; 4] =
    ["__traceiter_sched_switch", "__schedule", "schedule", "schedule_preempt_disabled"];

/// Parts of the names of such functions for a task that is preempted while it waits for an
/// acknowledgement.
const PREEMPTING: [&str; 3] = ["preempt_schedule", "irqentry", "sysvec_"];

/// The kernel's symbols.
pub(super) struct Sites {
    functions: Option<Symbols>,
}

impl Sites {
    /// Reads the symbols; without the right to do so, sites have no names.
    pub(super) fn new() -> Sites {
        Sites { functions: Symbols::read(spinning::symbols().as_bytes()).ok() }
    }

    /// Returns the function that wanted the lock; empty if it is unknown. In `frames`, the
    /// innermost frame comes first, and a 0 follows the last one.
    pub(super) fn name(&self, wait: Wait, frames: &[u64]) -> String {
        let Some(symbols) = &self.functions else { return String::new() };
        let frames = frames.iter().take_while(|address| **address != 0);
        let mut names = frames.filter_map(|address| symbols.name(*address));
        let is_locking = |name: &&str| {
            let holds = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
            holds(&LOCKING)
                || matches!(wait, Wait::Mutex | Wait::Ipi) && SWITCHING.contains(name)
                || wait == Wait::Ipi && holds(&PREEMPTING)
        };
        names.find(|name| !is_locking(name)).unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_that_lets_others_run_wants_its_lock_further_out() {
        let kallsyms = "ffffffff81000000 t __schedule\n\
                        ffffffff81000100 T schedule\n\
                        ffffffff81000200 T schedule_preempt_disabled\n\
                        ffffffff81000300 t __mutex_lock.constprop.0\n\
                        ffffffff81000400 t ext4_write\n";
        let sites = Sites { functions: Symbols::read(kallsyms.as_bytes()).ok() };
        let frames: Vec<u64> = (0..5).map(|at| 0xffff_ffff_8100_0010 + at * 0x100).collect();
        assert_eq!(sites.name(Wait::Mutex, &frames), "ext4_write");
        assert_eq!(sites.name(Wait::Spinlock, &frames), "__schedule");
        assert_eq!(sites.name(Wait::Mutex, &frames[..4]), "");
    }

    #[test]
    fn a_preempted_waiter_for_an_acknowledgement_wants_it_further_out() {
        let kallsyms = "ffffffff81000000 t __schedule\n\
                        ffffffff81000100 T preempt_schedule_irq\n\
                        ffffffff81000200 T irqentry_exit\n\
                        ffffffff81000300 T asm_sysvec_apic_timer_interrupt\n\
                        ffffffff81000400 t smp_call_function_many_cond\n\
                        ffffffff81000500 T on_each_cpu_cond_mask\n\
                        ffffffff81000600 T flush_tlb_mm_range\n";
        let sites = Sites { functions: Symbols::read(kallsyms.as_bytes()).ok() };
        let frames: Vec<u64> = (0..7).map(|at| 0xffff_ffff_8100_0010 + at * 0x100).collect();
        assert_eq!(sites.name(Wait::Ipi, &frames), "flush_tlb_mm_range");
        assert_eq!(sites.name(Wait::Spinlock, &frames[1..]), "preempt_schedule_irq");
    }
}
