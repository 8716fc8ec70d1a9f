//! Marks in the record of a virtual-time run. The host answers CPUID leaves of its own,
//! from user space and without privileges; other hosts answer them with something else.

use std::arch::x86_64::{__cpuid_count, CpuidResult};
use std::sync::LazyLock;

use unspin_wire::clock::{Moment, mono_ns};
use unspin_wire::{Mark, Marked};

/// Answers with the signature: EAX its version, EBX, ECX and EDX "unspin v", "t".
const SIGNATURE_LEAF: u32 = 0x4fff_0000;
/// Writes a mark of the kind in ECX and answers with the virtual time in EDX:EAX.
const MARK_LEAF: u32 = 0x4fff_0001;
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
    fn this_machine_marks_nothing() {
        assert_eq!(mark(Mark::Begin), None);
    }
}
