//! A vCPU's registers before its first instruction.

use std::io;

use igvm_defs::IgvmNativeVpContextX64 as Context;
use kvm_bindings::{Msrs, kvm_lapic_state, kvm_msr_entry, kvm_regs, kvm_segment};
use kvm_ioctls::VcpuFd;

use crate::error::{Step, VmmError};

const MSR_MISC_ENABLE: u32 = 0x1a0;
/// Fast string operations are enabled, as firmware leaves them.
const MISC_ENABLE_FAST_STRING: u64 = 1;
const MSR_MTRR_DEF_TYPE: u32 = 0x2ff;
/// MTRRs are enabled, and all memory is write-back.
const MTRR_WRITE_BACK: u64 = 1 << 11 | 6;

/// Offsets of the local vector table's pins in the APIC's page (Intel SDM 3, table 11-1).
const APIC_LVT0: usize = 0x350;
const APIC_LVT1: usize = 0x360;
/// Delivery modes, in bits 8 to 10 of an entry.
const MODE_MASK: u32 = 0x700;
const MODE_NMI: u32 = 0x400;
const MODE_EXTINT: u32 = 0x700;

/// Sets the state that firmware leaves on each processor: MTRRs, and the APIC's two pins.
pub fn set_firmware_state(vcpu: &VcpuFd) -> Result<(), VmmError> {
    let entry = |index, data| kvm_msr_entry { index, data, ..Default::default() };
    let entries = [
        entry(MSR_MISC_ENABLE, MISC_ENABLE_FAST_STRING),
        entry(MSR_MTRR_DEF_TYPE, MTRR_WRITE_BACK),
    ];
    // Two entries are far below the limit of the list.
    let msrs = Msrs::from_entries(&entries).expect("two entries");
    let set = vcpu.set_msrs(&msrs).step("set a vCPU's MSRs")?;
    all_set(&entries, set).step("set a vCPU's MSRs")?;
    let mut apic = vcpu.get_lapic().step("read a vCPU's APIC")?;
    set_mode(&mut apic, APIC_LVT0, MODE_EXTINT);
    set_mode(&mut apic, APIC_LVT1, MODE_NMI);
    vcpu.set_lapic(&apic).step("set a vCPU's APIC")
}

/// Checks that KVM set all MSRs. KVM stops at the first one that it refuses, and returns the number
/// of MSRs before it.
fn all_set(entries: &[kvm_msr_entry], set: usize) -> io::Result<()> {
    match entries.get(set) {
        Some(refused) => Err(io::Error::other(format!("KVM refuses {:#x}", refused.index))),
        None => Ok(()),
    }
}

fn set_mode(apic: &mut kvm_lapic_state, at: usize, mode: u32) {
    let bytes = std::array::from_fn(|index| apic.regs[at + index] as u8);
    let value = u32::from_le_bytes(bytes) & !MODE_MASK | mode;
    for (register, byte) in apic.regs[at..].iter_mut().zip(value.to_le_bytes()) {
        *register = byte as _;
    }
}

/// Sets the registers of the first vCPU.
pub fn set(vcpu: &VcpuFd, context: &Context) -> Result<(), VmmError> {
    let mut sregs = vcpu.get_sregs().step("read a vCPU's registers")?;
    let data = segment(
        context.data_selector,
        context.data_attributes,
        context.data_base.into(),
        context.data_limit,
    );
    (sregs.ds, sregs.es, sregs.ss, sregs.fs) = (data, data, data, data);
    sregs.gs = kvm_segment { base: context.gs_base, ..data };
    sregs.cs = segment(
        context.code_selector,
        context.code_attributes,
        context.code_base.into(),
        context.code_limit,
    );
    (sregs.gdt.base, sregs.gdt.limit) = (context.gdtr_base, context.gdtr_limit);
    (sregs.idt.base, sregs.idt.limit) = (context.idtr_base, context.idtr_limit);
    (sregs.cr0, sregs.cr3, sregs.cr4) = (context.cr0, context.cr3, context.cr4);
    sregs.efer = context.efer;
    vcpu.set_sregs(&sregs).step("set a vCPU's system registers")?;
    vcpu.set_regs(&general(context)).step("set a vCPU's registers")
}

fn general(context: &Context) -> kvm_regs {
    kvm_regs {
        rax: context.rax,
        rbx: context.rbx,
        rcx: context.rcx,
        rdx: context.rdx,
        rsi: context.rsi,
        rdi: context.rdi,
        rsp: context.rsp,
        rbp: context.rbp,
        r8: context.r8,
        r9: context.r9,
        r10: context.r10,
        r11: context.r11,
        r12: context.r12,
        r13: context.r13,
        r14: context.r14,
        r15: context.r15,
        rip: context.rip,
        rflags: context.rflags,
    }
}

/// Converts a segment from the attributes of a descriptor: type, S, DPL and P are bits 0 to 7; AVL,
/// L, D and G are bits 12 to 15.
fn segment(selector: u16, attributes: u16, base: u64, limit: u32) -> kvm_segment {
    let bit = |at: u32| (attributes >> at & 1) as u8;
    kvm_segment {
        base,
        limit,
        selector,
        type_: (attributes & 0xf) as u8,
        s: bit(4),
        dpl: (attributes >> 5 & 3) as u8,
        present: bit(7),
        avl: bit(12),
        l: bit(13),
        db: bit(14),
        g: bit(15),
        unusable: 0,
        padding: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_msr_is_named() {
        let entry = |index| kvm_msr_entry { index, ..Default::default() };
        let entries = [entry(0x1a0), entry(0x2ff)];
        assert_eq!(all_set(&entries, 1).unwrap_err().to_string(), "KVM refuses 0x2ff");
        assert!(all_set(&entries, 2).is_ok());
    }

    #[test]
    fn attributes_of_linuxs_segments_are_spread() {
        let code = segment(0x10, 0xa09b, 0, u32::MAX);
        assert_eq!(
            (code.type_, code.s, code.present, code.l, code.db, code.g),
            (11, 1, 1, 1, 0, 1)
        );
        let data = segment(0x18, 0xc093, 0, u32::MAX);
        assert_eq!((data.type_, data.l, data.db, data.g, data.dpl), (3, 0, 1, 1, 0));
    }
}
