//! Marks in the record of a virtual-time run. The simulated host answers its own CPUID leaves,
//! which a program can read from user space without privileges; other hosts give other answers.

use std::arch::x86_64::{__cpuid_count, CpuidResult};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::LazyLock;

use anyhow::{Context, bail, ensure};
use unspin_wire::clock::{Moment, mono_ns};
use unspin_wire::{Mark, Marked};

/// File with the kernel's symbols and their addresses.
const SYMBOLS: &str = "/proc/kallsyms";
/// Offset of the preempt_count in struct pcpu_hot (arch/x86/include/asm/current.h), whose first
/// field is the pointer to the current task.
const PCPU_HOT_PREEMPT_COUNT: u64 = 8;

/// Leaf that returns the signature: EAX holds its version; EBX, ECX and EDX hold "unspin v", "t".
const SIGNATURE_LEAF: u32 = 0x4fff_0000;
/// Leaf that writes a mark of the kind in ECX, and returns the virtual time in EDX:EAX.
const MARK_LEAF: u32 = 0x4fff_0001;
/// Leaf that takes the address of the kernel's preempt_count in ECX, if not 0; EAX is 1 if the host
/// wants it.
const CRITICAL_LEAF: u32 = 0x4fff_0002;
const SIGNATURE_VERSION: u32 = 1;

static HOST_MARKS: LazyLock<bool> = LazyLock::new(|| is_signature(cpuid(SIGNATURE_LEAF, 0)));

/// Marks this instant; `None` on a host that keeps no record.
pub fn mark(mark: Mark) -> Option<Marked> {
    if !*HOST_MARKS {
        return None;
    }
    let before = Moment::now();
    let answer = cpuid(MARK_LEAF, mark as u32);
    let after_ns = mono_ns();
    let virtual_ns = u64::from(answer.edx) << 32 | u64::from(answer.eax);
    Some(Marked { virtual_ns, before, after_ns })
}

/// Gives the host the address of the kernel's preempt_count, if the host asks for it. Each vCPU has
/// a preempt_count, at this address relative to its GS base.
pub fn announce_preempt_count() -> anyhow::Result<()> {
    if !*HOST_MARKS || cpuid(CRITICAL_LEAF, 0).eax == 0 {
        return Ok(());
    }
    let symbols = File::open(SYMBOLS).context(SYMBOLS)?;
    let address = preempt_count(BufReader::new(symbols)).context(SYMBOLS)?;
    cpuid(CRITICAL_LEAF, address as u32);
    Ok(())
}

/// Returns the address of `__preempt_count`, which was the second field of `pcpu_hot` from 6.4 to
/// 6.14.
fn preempt_count(symbols: impl BufRead) -> anyhow::Result<u64> {
    for line in symbols.lines() {
        let line = line?;
        let mut words = line.split_ascii_whitespace();
        let (address, name) = (words.next(), words.nth(1));
        let offset = match name {
            Some("__preempt_count") => 0,
            Some("pcpu_hot") => PCPU_HOT_PREEMPT_COUNT,
            _ => continue,
        };
        let address = u64::from_str_radix(address.unwrap_or_default(), 16)?;
        ensure!(address != 0, "addresses are hidden");
        return Ok(address + offset);
    }
    bail!("no per-CPU preempt_count")
}

fn is_signature(answer: CpuidResult) -> bool {
    answer.eax == SIGNATURE_VERSION
        && answer.ebx.to_le_bytes() == *b"unsp"
        && answer.ecx.to_le_bytes() == *b"in v"
        && answer.edx.to_le_bytes()[0] == b't'
}

#[allow(unused_unsafe, reason = "a safe function since Rust 1.94, an unsafe one before")]
fn cpuid(leaf: u32, subleaf: u32) -> CpuidResult {
    // SAFETY: CPUID exists on every x86-64 CPU, and changes no memory.
    unsafe { __cpuid_count(leaf, subleaf) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_signature_is_one() {
        let word = |text: &[u8; 4]| u32::from_le_bytes(*text);
        let signature =
            CpuidResult { eax: 1, ebx: word(b"unsp"), ecx: word(b"in v"), edx: word(b"t\0\0\0") };
        assert!(is_signature(signature));
        assert!(!is_signature(CpuidResult { eax: 2, ..signature }));
        assert!(!is_signature(CpuidResult { ecx: 0, ..signature }));
    }

    #[test]
    fn the_count_is_found_among_the_symbols_of_each_kernel() {
        let of = |symbols: &str| preempt_count(symbols.as_bytes());
        let now = "ffffffff81000000 T _text\nffffffffa3c05004 D __preempt_count\n";
        assert_eq!(of(now).unwrap(), 0xffff_ffff_a3c0_5004);
        assert_eq!(of("0000000000034a40 A pcpu_hot\n").unwrap(), 0x34a48);
        assert_eq!(of("0000000000002004 A __preempt_count\t[x]\n").unwrap(), 0x2004);
        assert!(of("0000000000000000 A __preempt_count\n").is_err(), "kptr_restrict");
        assert!(of("ffffffff81000000 T preempt_count_add\n").is_err());
    }

    #[test]
    fn this_machine_marks_nothing() {
        assert_eq!(mark(Mark::Begin), None);
    }
}
