//! The first vCPU's registers at the kernel's 64-bit entry.
//!
//! Linux wants 64-bit mode with paging, flat segments 0x10 (code) and 0x18 (data), interrupts off,
//! and the address of boot_params in RSI (Documentation/arch/x86/boot.rst, "64-bit boot protocol").

use igvm::snp_defs::{SevFeatures, SevSelector, SevVmsa};
use igvm_defs::IgvmNativeVpContextX64;
use zerocopy::FromZeros;

/// Selector of the code segment, __BOOT_CS.
const CODE: u16 = 0x10;
/// Selector of the data segments, __BOOT_DS.
const DATA: u16 = 0x18;
/// Null, null, 64-bit code, data.
const GDT: [u64; 4] = [0, 0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff];
const GDT_LIMIT: u16 = 31;

/// Attributes as the VMCB has them: type, S, DPL and P in bits 0 to 7, AVL, L, D and G in 8 to 11.
const CODE_ATTRIBUTES: u16 = 0xa9b;
const DATA_ATTRIBUTES: u16 = 0xc93;
/// A busy TSS.
const TASK_ATTRIBUTES: u16 = 0x8b;
const LDT_ATTRIBUTES: u16 = 0x82;

/// Paging, numeric errors, extension type, protection: what KVM keeps in a VMSA as it is.
const CR0: u64 = 0x8000_0031;
/// Physical address extension.
const CR4: u64 = 0x20;
/// Long mode, enabled and active.
const EFER: u64 = 0x500;
/// VMRUN refuses a guest without it.
const EFER_SVME: u64 = 0x1000;
/// The bit that is always set.
const RFLAGS: u64 = 2;
/// Reset values.
const PAT: u64 = 0x0007_0406_0007_0406;
const DR6: u64 = 0xffff_0ff0;
const DR7: u64 = 0x400;
const MXCSR: u32 = 0x1f80;
const X87_FCW: u16 = 0x37f;
const XCR0: u64 = 1;

/// What differs between guests.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// Address of the entry.
    pub rip: u64,
    /// Address of boot_params.
    pub boot_params: u64,
    /// Address of the top page table, with the C-bit if there is one.
    pub cr3: u64,
    /// Address of the global descriptor table.
    pub gdt: u64,
}

/// The global descriptor table.
pub fn gdt() -> Vec<u8> {
    GDT.iter().flat_map(|entry| entry.to_le_bytes()).collect()
}

/// The registers as SEV-ES and SEV-SNP save them.
pub fn vmsa(start: Start, snp: bool) -> Box<SevVmsa> {
    // Without it, memory is exhausted, and the process aborts as for any other allocation.
    let mut vmsa = SevVmsa::new_box_zeroed().expect("4 KiB of memory");
    let data = segment(DATA, DATA_ATTRIBUTES, u32::MAX);
    (vmsa.es, vmsa.ss, vmsa.ds, vmsa.fs, vmsa.gs) = (data, data, data, data, data);
    vmsa.cs = segment(CODE, CODE_ATTRIBUTES, u32::MAX);
    vmsa.ldtr = segment(0, LDT_ATTRIBUTES, 0xffff);
    vmsa.tr = segment(0, TASK_ATTRIBUTES, 0xffff);
    vmsa.gdtr = SevSelector { base: start.gdt, ..segment(0, 0, GDT_LIMIT.into()) };
    vmsa.efer = EFER | EFER_SVME;
    (vmsa.cr0, vmsa.cr3, vmsa.cr4) = (CR0, start.cr3, CR4);
    (vmsa.dr6, vmsa.dr7) = (DR6, DR7);
    (vmsa.rflags, vmsa.rip, vmsa.rsi) = (RFLAGS, start.rip, start.boot_params);
    (vmsa.pat, vmsa.xcr0, vmsa.mxcsr, vmsa.x87_fcw) = (PAT, XCR0, MXCSR, X87_FCW);
    vmsa.sev_features = SevFeatures::new().with_snp(snp);
    vmsa
}

fn segment(selector: u16, attrib: u16, limit: u32) -> SevSelector {
    SevSelector { selector, attrib, limit, base: 0 }
}

/// The registers for platforms that do not measure them.
pub fn native(start: Start) -> Box<IgvmNativeVpContextX64> {
    // See above.
    let mut context = IgvmNativeVpContextX64::new_box_zeroed().expect("memory");
    (context.rip, context.rsi, context.rflags) = (start.rip, start.boot_params, RFLAGS);
    (context.gdtr_base, context.gdtr_limit) = (start.gdt, GDT_LIMIT);
    (context.code_selector, context.code_limit) = (CODE, u32::MAX);
    (context.data_selector, context.data_limit) = (DATA, u32::MAX);
    context.code_attributes = spread(CODE_ATTRIBUTES);
    context.data_attributes = spread(DATA_ATTRIBUTES);
    (context.cr0, context.cr3, context.cr4, context.efer) = (CR0, start.cr3, CR4, EFER);
    context
}

/// Attributes as a descriptor has them: with four bits of zeros, 8 to 11, in the middle.
fn spread(attributes: u16) -> u16 {
    attributes & 0xff | (attributes & 0xf00) << 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let start = Start { rip: 0x100_0200, boot_params: 0x7000, cr3: 0x9000, gdt: 0x6000 };
        let (vmsa, native) = (vmsa(start, true), native(start));
        assert_eq!((vmsa.rip, vmsa.rsi, vmsa.cr3), (native.rip, native.rsi, native.cr3));
        assert_eq!((native.code_attributes, native.data_attributes), (0xa09b, 0xc093));
        assert_eq!(vmsa.efer, native.efer | EFER_SVME);
        assert!(vmsa.sev_features.snp() && vmsa.cs.attrib == 0xa9b);
        // Long mode needs PG, PE, PAE, LME and LMA, and L without D in the code segment.
        assert_eq!((vmsa.cr0 >> 31 & 1, vmsa.cr0 & 1, vmsa.cr4 >> 5 & 1), (1, 1, 1));
        assert_eq!(vmsa.cs.attrib >> 9 & 3, 1);
        assert_eq!(gdt().len(), GDT_LIMIT as usize + 1);
    }
}
