//! Where the kernel spins: the addresses of the functions that wait without sleeping.

use std::fs;
use std::sync::OnceLock;

use crate::sense::tells_timers;

/// As many as bpf/sense/sense.h has places for.
const PLACES: usize = 24;

/// Their names; what a compiler made of one (`.constprop.0`, `.isra.0`) counts, too.
const FUNCTIONS: [&str; 15] = [
    "native_queued_spin_lock_slowpath",
    "__pv_queued_spin_lock_slowpath",
    "queued_spin_lock_slowpath",
    "queued_read_lock_slowpath",
    "queued_write_lock_slowpath",
    "osq_lock",
    "mutex_spin_on_owner",
    "mutex_optimistic_spin",
    "rwsem_spin_on_owner",
    "rwsem_optimistic_spin",
    "rtmutex_spin_on_owner",
    "smp_call_function_many_cond",
    "smp_call_function_single",
    "csd_lock_wait",
    "csd_lock_wait_toolong",
];

/// What the kernel's symbols say.
pub(crate) struct Kernel {
    /// The ranges of addresses where it spins, from and up to; none without the right to see
    /// them.
    ranges: Vec<(u64, u64)>,
    /// Whether it says where its timers are.
    pub(crate) tells_timers: bool,
}

/// This kernel's; they are read once, since there are a hundred thousand of them.
pub(crate) fn kernel() -> &'static Kernel {
    static KERNEL: OnceLock<Kernel> = OnceLock::new();
    KERNEL.get_or_init(|| {
        let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        Kernel { ranges: find(&symbols), tells_timers: tells_timers(&symbols) }
    })
}

/// The ranges of addresses on this kernel, from and up to.
pub(crate) fn ranges() -> Vec<(u64, u64)> {
    kernel().ranges.clone()
}

/// The same for all places there are, unused ones 0.
pub(crate) fn words() -> Vec<u64> {
    let mut words: Vec<u64> = ranges().into_iter().flat_map(|(from, to)| [from, to]).collect();
    words.resize(2 * PLACES, 0);
    words
}

fn find(kallsyms: &str) -> Vec<(u64, u64)> {
    let mut symbols: Vec<(u64, &str)> = kallsyms.lines().filter_map(symbol).collect();
    symbols.sort_unstable();
    let is_meant = |name: &str| FUNCTIONS.contains(&name.split('.').next().unwrap_or(name));
    let ends = |from: u64| symbols.iter().map(|(at, _)| *at).find(move |at| *at > from);
    let meant = symbols.iter().filter(|(at, name)| *at != 0 && is_meant(name));
    let mut ranges: Vec<(u64, u64)> =
        meant.filter_map(|(from, _)| Some((*from, ends(*from)?))).collect();
    ranges.dedup();
    ranges.truncate(PLACES);
    ranges
}

/// The address and the name of a function.
fn symbol(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let is_code = words.next()?.eq_ignore_ascii_case("t");
    Some((address, words.next()?)).filter(|_| is_code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_ends_where_the_next_one_begins() {
        let text = "ffffffff81000300 T schedule\n\
                    ffffffff81000100 t osq_lock\n\
                    ffffffff81000180 T osq_unlock\n\
                    ffffffff81000200 t mutex_spin_on_owner.isra.0\n\
                    ffffffff81000190 D csd_lock_wait\n\
                    ffffffff81000100 t osq_lock\n\
                    broken\n";
        let ranges = find(text);
        let high = 0xffff_ffff_8100_0000;
        assert_eq!(ranges, [(high + 0x100, high + 0x180), (high + 0x200, high + 0x300)]);
        assert!(find("0000000000000000 t osq_lock\n0000000000000000 t schedule\n").is_empty());
    }
}
