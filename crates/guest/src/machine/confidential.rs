//! Finds out whether the machine's memory is hidden from its host, and how.

use unspin_model::diagnosis::Confidential;

use super::{Facts, words};

/// Returns the kind of confidential VM, from the most direct evidence that is available:
/// - TDX has its own CPUID leaf (TDX module base specification, 11.2);
/// - the MSR SEV_STATUS, if it can be read (AMD APM volume 2, 15.34.10);
/// - Hyper-V hides both behind a paravisor, and reports the kind in 0x4000000c EBX (Hyper-V TLFS,
///   isolation configuration: 2 is SNP, 3 is TDX);
/// - the kernel's log;
/// - a virtual CPU that knows SEV shows only that the machine may be a confidential VM.
pub fn confidential(facts: &Facts) -> Confidential {
    if !facts.is_virtual() {
        return Confidential::Plain;
    }
    let tdx = facts.leaf(0x21).map(|leaf| words(&[leaf.ebx, leaf.edx, leaf.ecx]));
    if tdx.as_deref() == Some("IntelTDX") {
        return Confidential::Tdx;
    }
    let knows_sev = facts.leaf(0x8000_001f).is_some_and(|leaf| leaf.eax & 0b10 != 0);
    if let Some(status) = facts.sev_status.filter(|_| knows_sev) {
        return from_sev_status(status);
    }
    if let Some(kind) = hyper_v_isolation(facts) {
        return kind;
    }
    match facts.kernel_says.as_deref().map(from_log) {
        Some(kind) => kind,
        None if knows_sev => Confidential::SevUnknown,
        None => Confidential::Plain,
    }
}

/// Decodes SEV_STATUS: bit 0 is SEV, bit 1 SEV-ES, bit 2 SEV-SNP.
fn from_sev_status(status: u64) -> Confidential {
    match status & 0b111 {
        0 => Confidential::Plain,
        bits if bits & 0b100 != 0 => Confidential::SevSnp,
        bits if bits & 0b010 != 0 => Confidential::SevEs,
        _ => Confidential::Sev,
    }
}

fn hyper_v_isolation(facts: &Facts) -> Option<Confidential> {
    let first = facts.leaf(0x4000_0000)?;
    if words(&[first.ebx, first.ecx, first.edx]) != "Microsoft Hv" {
        return None;
    }
    match facts.leaf(0x4000_000c)?.ebx & 0xf {
        2 => Some(Confidential::SevSnp),
        3 => Some(Confidential::Tdx),
        _ => None,
    }
}

/// Decodes the kernel's message: `Memory Encryption Features active: AMD SEV SEV-ES SEV-SNP`, or
/// `... Intel TDX` (arch/x86/mm/mem_encrypt.c).
fn from_log(line: &str) -> Confidential {
    let says = |name: &str| line.split_ascii_whitespace().any(|word| word == name);
    match () {
        () if says("TDX") => Confidential::Tdx,
        () if says("SEV-SNP") => Confidential::SevSnp,
        () if says("SEV-ES") => Confidential::SevEs,
        () if says("SEV") => Confidential::Sev,
        () => Confidential::Plain,
    }
}
