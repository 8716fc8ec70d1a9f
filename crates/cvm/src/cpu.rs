//! The registers that a file gives to a vCPU.

use igvm::IgvmDirectiveHeader as Directive;
use igvm::registers::X86Register;
use igvm::snp_defs::SevVmsa;
use igvm_defs::IgvmNativeVpContextX64;
use serde::{Serialize, Serializer};

use crate::platform::Platform;

/// Protected mode is enabled.
const CR0_PE: u64 = 1;
/// Paging is enabled.
const CR0_PG: u64 = 1 << 31;
/// Long mode is active.
const EFER_LMA: u64 = 1 << 10;

/// The displayed part of a vCPU's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CpuState {
    /// The platforms that the state is for.
    pub platforms: Vec<Platform>,
    /// Index of the directive.
    pub directive: usize,
    /// Number of the vCPU.
    pub vp_index: u16,
    /// `64-bit`, `32-bit with paging`, `32-bit`, `real`, or `aarch64`.
    pub mode: &'static str,
    /// Registers by name. JSON has them as hexadecimal numbers.
    #[serde(serialize_with = "as_map")]
    pub registers: Vec<(&'static str, u64)>,
}

fn as_map<S: Serializer>(
    registers: &[(&'static str, u64)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(registers.iter().map(|(name, value)| (name, format!("{value:#x}"))))
}

impl CpuState {
    /// Returns the state in a directive, if it has one.
    pub fn of(directive: usize, header: &Directive, platforms: Vec<Platform>) -> Option<CpuState> {
        let (vp_index, registers) = match header {
            Directive::SnpVpContext { vp_index, vmsa, .. } => (*vp_index, of_vmsa(vmsa)),
            Directive::X64NativeVpContext { vp_index, context, .. } => {
                (*vp_index, of_native(context))
            }
            Directive::X64VbsVpContext { registers, .. } => (0, of_vbs(registers)),
            Directive::AArch64VbsVpContext { .. } => (0, vec![]),
            Directive::AArch64CcaVpContext { vp_index, context, .. } => {
                (*vp_index, vec![("pc", context.pc), ("x0", context.x0), ("flags", context.flags)])
            }
            _ => return None,
        };
        let mode = mode(&registers);
        Some(CpuState { platforms, directive, vp_index, mode, registers })
    }

    /// Returns a register, or 0 if the file does not set it.
    pub fn get(&self, name: &str) -> u64 {
        value(&self.registers, name)
    }

    /// Returns whether the vCPU translates addresses by page tables.
    pub fn is_paging(&self) -> bool {
        self.get("cr0") & CR0_PG != 0
    }
}

fn value(registers: &[(&'static str, u64)], name: &str) -> u64 {
    registers.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
}

fn mode(registers: &[(&'static str, u64)]) -> &'static str {
    let is_x86 = registers.iter().any(|(name, _)| *name == "rip");
    let (cr0, efer) = (value(registers, "cr0"), value(registers, "efer"));
    match (cr0 & CR0_PE != 0, cr0 & CR0_PG != 0, efer & EFER_LMA != 0) {
        _ if !is_x86 => "aarch64",
        (false, _, _) => "real",
        (true, true, true) => "64-bit",
        (true, true, false) => "32-bit with paging",
        (true, false, _) => "32-bit",
    }
}

fn of_vmsa(vmsa: &SevVmsa) -> Vec<(&'static str, u64)> {
    vec![
        ("rip", vmsa.rip),
        ("rsp", vmsa.rsp),
        ("rax", vmsa.rax),
        ("rbx", vmsa.rbx),
        ("rcx", vmsa.rcx),
        ("rdx", vmsa.rdx),
        ("rsi", vmsa.rsi),
        ("rdi", vmsa.rdi),
        ("rflags", vmsa.rflags),
        ("cr0", vmsa.cr0),
        ("cr3", vmsa.cr3),
        ("cr4", vmsa.cr4),
        ("efer", vmsa.efer),
        ("cs", vmsa.cs.selector.into()),
        ("cs_base", vmsa.cs.base),
        ("gdt", vmsa.gdtr.base),
        ("idt", vmsa.idtr.base),
        ("xcr0", vmsa.xcr0),
        ("pat", vmsa.pat),
        ("vmpl", vmsa.vmpl.into()),
        ("sev_features", vmsa.sev_features.into()),
    ]
}

fn of_native(context: &IgvmNativeVpContextX64) -> Vec<(&'static str, u64)> {
    vec![
        ("rip", context.rip),
        ("rsp", context.rsp),
        ("rax", context.rax),
        ("rbx", context.rbx),
        ("rcx", context.rcx),
        ("rdx", context.rdx),
        ("rsi", context.rsi),
        ("rdi", context.rdi),
        ("rflags", context.rflags),
        ("cr0", context.cr0),
        ("cr3", context.cr3),
        ("cr4", context.cr4),
        ("efer", context.efer),
        ("cs", context.code_selector.into()),
        ("cs_base", context.code_base.into()),
        ("gdt", context.gdtr_base),
        ("idt", context.idtr_base),
    ]
}

fn of_vbs(registers: &[X86Register]) -> Vec<(&'static str, u64)> {
    let mut found: Vec<_> = registers.iter().filter_map(named).collect();
    if value(&found, "rip") == 0 {
        found.push(("rip", 0));
    }
    found
}

fn named(register: &X86Register) -> Option<(&'static str, u64)> {
    Some(match register {
        X86Register::Rip(value) => ("rip", *value),
        X86Register::Rsp(value) => ("rsp", *value),
        X86Register::Rbp(value) => ("rbp", *value),
        X86Register::Rsi(value) => ("rsi", *value),
        X86Register::Rflags(value) => ("rflags", *value),
        X86Register::Cr0(value) => ("cr0", *value),
        X86Register::Cr3(value) => ("cr3", *value),
        X86Register::Cr4(value) => ("cr4", *value),
        X86Register::Efer(value) => ("efer", *value),
        X86Register::Pat(value) => ("pat", *value),
        X86Register::Cs(segment) => ("cs_base", segment.base),
        X86Register::Gdtr(table) => ("gdt", table.base),
        X86Register::Idtr(table) => ("idt", table.base),
        _ => return None,
    })
}
