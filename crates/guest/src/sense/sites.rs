//! Which function wanted a lock: the first one on the stack that is not part of locking.

use unspin_model::episode::Wait;
use unspin_trace::storms::Symbols;

use crate::spinning;

/// Functions that are ways into a lock, or of looking at it, by what their names hold.
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

/// Functions between a waiter for a mutex, which gives up to let others run, and their switch. No
/// such waiter wants its lock in one of them.
const SWITCHING: [&str; 4] =
    ["__traceiter_sched_switch", "__schedule", "schedule", "schedule_preempt_disabled"];

/// The kernel's symbols.
pub(super) struct Sites {
    functions: Option<Symbols>,
}

impl Sites {
    /// Reads them; without the right to do so, sites have no names.
    pub(super) fn new() -> Sites {
        Sites { functions: Symbols::read(spinning::symbols().as_bytes()).ok() }
    }

    /// The function that wanted the lock; empty where that is not known. The innermost
    /// frame comes first, and a 0 behind the last one.
    pub(super) fn name(&self, wait: Wait, frames: &[u64]) -> String {
        let Some(symbols) = &self.functions else { return String::new() };
        let frames = frames.iter().take_while(|address| **address != 0);
        let mut names = frames.filter_map(|address| symbols.name(*address));
        let is_locking = |name: &&str| {
            LOCKING.iter().any(|part| name.contains(part))
                || wait == Wait::Mutex && SWITCHING.contains(name)
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
}
