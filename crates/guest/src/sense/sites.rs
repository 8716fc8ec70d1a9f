//! Which function wanted a lock: the first one on the stack that is not part of locking.

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
    pub(super) fn name(&self, frames: &[u64]) -> String {
        let Some(symbols) = &self.functions else { return String::new() };
        let frames = frames.iter().take_while(|address| **address != 0);
        let mut names = frames.filter_map(|address| symbols.name(*address));
        let is_locking = |name: &&str| LOCKING.iter().any(|part| name.contains(part));
        names.find(|name| !is_locking(name)).unwrap_or_default().to_owned()
    }
}
