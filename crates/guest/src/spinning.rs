//! Finds where the kernel spins: the addresses of the functions that wait without sleeping.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::sync::OnceLock;

const KALLSYMS: &str = "/proc/kallsyms";
/// The kernel's variable with the timers of all CPUs.
pub(crate) const TIMERS: &str = "hrtimer_bases";
/// The name of the missing hook if the kernel lists its functions without their addresses.
pub(crate) const ADDRESSES: &str = "kallsyms";
const THROTTLES_IN_USER: &str = "throttle_cfs_rq_work";
/// The symbol at the end of the kernel's own code.
const END_OF_TEXT: &str = "_etext";
/// The number of ranges that bpf/sense/sense.h has room for.
const PLACES: usize = 24;

/// The names of the functions. Variants that a compiler makes (`.constprop.0`, `.isra.0`) count,
/// too.
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

/// The properties of a kernel that its symbols reveal.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// The ranges of addresses where the kernel spins, each from its start up to its end
    /// (exclusive). Empty without the right to see them.
    ranges: Vec<(u64, u64)>,
    /// Whether the addresses are hidden: with kernel.kptr_restrict=2, even from root.
    pub(crate) hides_addresses: bool,
    /// Whether the symbols include the kernel's timers.
    pub(crate) tells_timers: bool,
    /// Whether the kernel throttles tasks only when they return to user space. Before Linux 6.18,
    /// it also throttled tasks that hold a lock.
    pub(crate) throttles_in_user: bool,
}

static KERNEL: OnceLock<Kernel> = OnceLock::new();

/// Returns the properties of this kernel, whose symbols are read once.
pub(crate) fn kernel() -> &'static Kernel {
    KERNEL.get_or_init(|| {
        File::open(KALLSYMS).map(|file| Kernel::read(BufReader::new(file))).unwrap_or_default()
    })
}

/// Returns the first two numbers of this kernel's version, such as 6 and 12.
pub(crate) fn version() -> Option<(u32, u32)> {
    let about = nix::sys::utsname::uname().ok()?;
    let mut numbers = about.release().to_str()?.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next()?.parse().ok();
    Some((number()?, number()?))
}

/// Returns all of the kernel's symbols; empty without the right to see them.
pub(crate) fn symbols() -> String {
    let text = fs::read_to_string(KALLSYMS).unwrap_or_default();
    KERNEL.get_or_init(|| Kernel::read(text.as_bytes()));
    text
}

/// Returns the ranges of addresses where this kernel spins, each from its start up to its end.
pub(crate) fn ranges() -> Vec<(u64, u64)> {
    kernel().ranges.clone()
}

/// Returns these ranges for all places that the BPF programs have, with 0 in unused ones.
pub(crate) fn words() -> Vec<u64> {
    let mut words: Vec<u64> = ranges().into_iter().flat_map(|(from, to)| [from, to]).collect();
    words.resize(2 * PLACES, 0);
    words
}

impl Kernel {
    /// Reads the format of /proc/kallsyms, which lists the kernel's own code by address. It has two
    /// hundred thousand lines, and the kernel takes microseconds to write each: so reading stops
    /// after the last line that matters.
    fn read(mut kallsyms: impl BufRead) -> Kernel {
        let mut kernel = Kernel::default();
        // The start of a function whose end is the start of the next one.
        let mut begun = None;
        let mut is_text = true;
        let mut line = String::new();
        while is_text || !kernel.tells_timers {
            line.clear();
            if !matches!(kallsyms.read_line(&mut line), Ok(1..)) {
                break;
            }
            let Some(Symbol { address, is_code, name }) = symbol(&line) else { continue };
            kernel.tells_timers |= name == TIMERS;
            if !is_text || !is_code {
                continue;
            }
            kernel.throttles_in_user |= name == THROTTLES_IN_USER;
            if let Some(from) = begun.take_if(|from| *from < address) {
                kernel.ranges.push((from, address));
            }
            let plain = name.split('.').next().unwrap_or(name);
            if FUNCTIONS.contains(&plain) {
                match address {
                    0 => kernel.hides_addresses = true,
                    from => begun = Some(from),
                }
            }
            is_text = name != END_OF_TEXT;
        }
        kernel.ranges.truncate(PLACES);
        kernel
    }
}

struct Symbol<'a> {
    address: u64,
    is_code: bool,
    name: &'a str,
}

fn symbol(line: &str) -> Option<Symbol<'_>> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let is_code = words.next()?.eq_ignore_ascii_case("t");
    Some(Symbol { address, is_code, name: words.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIGH: u64 = 0xffff_ffff_8100_0000;

    #[test]
    fn a_function_ends_where_the_next_one_begins() {
        let text = "0000000000025e40 A hrtimer_bases\n\
                    ffffffff81000100 t osq_lock\n\
                    ffffffff81000100 t osq_lock\n\
                    ffffffff81000180 T osq_unlock\n\
                    ffffffff81000190 D csd_lock_wait\n\
                    broken\n\
                    ffffffff81000200 t mutex_spin_on_owner.isra.0\n\
                    ffffffff81000200 t an_alias\n\
                    ffffffff81000300 t throttle_cfs_rq_work\n\
                    ffffffff81000400 T _etext\n\
                    ffffffffc0000000 t csd_lock_wait\t[module]\n\
                    ffffffffc0000010 t next\t[module]\n";
        let ranges = vec![(HIGH + 0x100, HIGH + 0x180), (HIGH + 0x200, HIGH + 0x300)];
        let kernel = Kernel::read(text.as_bytes());
        let shown =
            Kernel { ranges, hides_addresses: false, tells_timers: true, throttles_in_user: true };
        assert_eq!(kernel, shown);
        let text = "0000000000000000 t osq_lock\n0000000000000000 t schedule\n";
        let hidden = Kernel { hides_addresses: true, ..Kernel::default() };
        assert_eq!(Kernel::read(text.as_bytes()), hidden);
        assert_eq!(Kernel::read(&b""[..]), Kernel::default());
    }

    #[test]
    fn no_more_is_read_than_matters() {
        let later = "ffffffff81000400 T _etext\nffffffff82000000 D hrtimer_bases\n";
        let mut rest = format!("{later}more\n").into_bytes();
        let mut unread = rest.as_slice();
        assert!(Kernel::read(&mut unread).tells_timers);
        assert_eq!(unread, b"more\n");
        rest.splice(..0, *b"0000000000000010 A hrtimer_bases\n");
        let mut unread = rest.as_slice();
        assert!(Kernel::read(&mut unread).tells_timers);
        assert!(unread.starts_with(b"ffffffff82000000 D"));
    }
}
