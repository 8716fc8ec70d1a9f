//! The first instruction: the vCPU's registers must lead to a page that the file has and measures.

use super::{Found, Subject};
use crate::cpu::CpuState;
use crate::memory::{Memory, Unmapped, walk};
use crate::platform::Platform;

/// The address at which x86 processors start.
const RESET_VECTOR: u64 = 0xffff_fff0;
/// The bit of EFER without which VMRUN refuses a guest.
const EFER_SVME: u64 = 1 << 12;

/// Returns the vCPUs of the file, and reports those that should not be there.
pub fn vcpus(subject: &Subject, found: &mut Found) -> Vec<CpuState> {
    let vcpus = subject.vcpus();
    if let (Platform::Tdx, Some(first)) = (subject.platform, vcpus.first()) {
        let what = "has registers, and a TDX guest always starts at the reset vector";
        found.error(Some(first.directive), what.into());
    }
    let mut known = std::collections::HashMap::new();
    for vcpu in &vcpus {
        if let Some(by) = known.insert(vcpu.vp_index, vcpu.directive) {
            let what =
                format!("vCPU {} has its registers from directive {by} already", vcpu.vp_index);
            found.error(Some(vcpu.directive), what);
        }
    }
    vcpus
}

/// Checks a file without registers, whose vCPUs start at the reset vector.
pub fn check_reset(subject: &Subject, memory: &Memory, found: &mut Found) {
    let wrong = match memory.page(RESET_VECTOR) {
        _ if subject.platform == Platform::Cca => "so no vCPU knows where to start",
        None => "and no page at the reset vector, 0xfffffff0",
        Some(page) if !page.measured => "and the page at the reset vector is not measured",
        Some(_) => return,
    };
    found.error(None, format!("has no registers (VP context), {wrong}"));
}

/// Checks the address at which a vCPU starts.
pub fn check(subject: &Subject, memory: &Memory, vcpu: &CpuState, found: &mut Found) {
    let directive = Some(vcpu.directive);
    let saves = matches!(subject.platform, Platform::Snp | Platform::SevEs);
    if saves && vcpu.get("efer") & EFER_SVME == 0 {
        found.error(directive, "EFER.SVME is clear in the VMSA: VMRUN refuses such a guest".into());
    }
    let address = vcpu.get("cs_base").wrapping_add(vcpu.get("rip"));
    let gpa = match vcpu.mode {
        "aarch64" => return,
        "32-bit with paging" => {
            let what = "starts in 32-bit mode with paging; unspin does not follow those tables";
            return found.note(directive, what.into());
        }
        "64-bit" => match mapped(subject, memory, vcpu, vcpu.get("rip")) {
            Ok(gpa) => gpa,
            Err(why) => {
                return found.error(directive, format!("the entry point {address:#x} {why}"));
            }
        },
        _ => address,
    };
    let wrong = match memory.page(gpa) {
        None => "is not in the file",
        Some(page) if !page.measured => "is not measured: anybody can replace the code there",
        Some(_) => return,
    };
    found.error(directive, format!("the page of the entry point, {gpa:#x}, {wrong}"));
}

/// Translates an address in 64-bit mode to a guest-physical one, or returns what is wrong with it.
fn mapped(
    subject: &Subject,
    memory: &Memory,
    vcpu: &CpuState,
    address: u64,
) -> Result<u64, String> {
    let encrypted = subject.platform.has_c_bit();
    match walk(memory, vcpu, encrypted, address) {
        Ok(found) if encrypted && !found.private => {
            Err("is mapped without a C-bit in CR3 and each entry: the guest reads ciphertext there"
                .into())
        }
        Ok(found) => Ok(found.gpa),
        Err(Unmapped::Table(gpa)) => {
            Err(format!("is not mapped: the page table at {gpa:#x} is not in the file"))
        }
        Err(Unmapped::Entry(at)) => {
            Err(format!("is not mapped: the page table entry at {at:#x} is not present"))
        }
    }
}
