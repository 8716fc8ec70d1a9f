//! The first vCPU's registers at the kernel's 64-bit entry.
//!
//! Linux requires 64-bit mode with paging, flat segments 0x10 (code) and 0x18 (data), disabled
//! interrupts, and the address of boot_params in RSI (Documentation/arch/x86/boot.rst, "64-bit boot
//! protocol").

use igvm::snp_defs::{SevFeatures, SevSelector, SevVmsa};
use igvm_defs::IgvmNativeVpContextX64;
use zerocopy::FromZeros;

/// Selector of the code segment, __BOOT_CS.
const CODE: u16 = 0x10;
/// Selector of the data segments, __BOOT_DS.
const DATA: u16 = 0x18;
/// Descriptors: null, null, 64-bit code, data.
const GDT: [u64; 4] = [0, 0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff];
const GDT_LIMIT: u16 = 31;

/// Attributes in the VMCB's format: type, S, DPL and P are bits 0 to 7; AVL, L, D and G are bits 8
/// to 11.
const CODE_ATTRIBUTES: u16 = 0xa9b;
const DATA_ATTRIBUTES: u16 = 0xc93;
/// Attributes of a busy TSS.
const TASK_ATTRIBUTES: u16 = 0x8b;
const LDT_ATTRIBUTES: u16 = 0x82;

/// CR0 with paging, numeric errors, extension type and protection: KVM keeps these bits in a VMSA.
const CR0: u64 = 0x8000_0031;
/// CR4 with physical address extension.
const CR4: u64 = 0x20;
/// Bit of CR4 for machine checks. KVM sets it in each VMSA if the host has it set, and measures
/// that value (`svm_set_cr4` in arch/x86/kvm/svm/svm.c).
pub(crate) const CR4_MCE: u64 = 0x40;
/// Bits of CR0 that disable caches. KVM clears both in each VMSA (`svm_set_cr0`).
pub(crate) const CR0_NO_CACHES: u64 = 0x6000_0000;
/// EFER with long mode enabled and active.
const EFER: u64 = 0x500;
/// The bit of EFER without which VMRUN refuses a guest.
const EFER_SVME: u64 = 0x1000;
/// The bit of RFLAGS that is always set.
const RFLAGS: u64 = 2;
/// The registers' values after a reset.
const PAT: u64 = 0x0007_0406_0007_0406;
const DR6: u64 = 0xffff_0ff0;
const DR7: u64 = 0x400;
const MXCSR: u32 = 0x1f80;
/// CR0 in real mode after INIT, without [`CR0_NO_CACHES`]: extension type.
const CR0_INIT: u64 = 0x10;
const REAL_CODE_ATTRIBUTES: u16 = 0x9b;
const REAL_DATA_ATTRIBUTES: u16 = 0x93;
const REAL_LIMIT: u32 = 0xffff;
/// Offsets in the page of [`ap_page`]: the jump by the table, and the halt until the table is set.
const AP_JUMP: u16 = 0x10;
const AP_HALT: u16 = 0x20;
const X87_FCW: u16 = 0x37f;
const XCR0: u64 = 1;

/// The registers that differ between guests.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// Address of the 64-bit entry.
    pub rip: u64,
    /// Address of boot_params.
    pub boot_params: u64,
    /// Address of the top page table, with the C-bit if there is one.
    pub cr3: u64,
    /// Address of the global descriptor table.
    pub gdt: u64,
}

/// Returns the global descriptor table.
pub fn gdt() -> Vec<u8> {
    GDT.iter().flat_map(|entry| entry.to_le_bytes()).collect()
}

/// Returns the registers in the format of SEV-ES and SEV-SNP.
pub fn vmsa(start: Start, snp: bool) -> Box<SevVmsa> {
    // The allocation fails only without memory. The process then aborts, as for any other one.
    let mut vmsa = SevVmsa::new_box_zeroed().expect("4 KiB of memory");
    set_initial(&mut vmsa);
    set_data_segments(&mut vmsa, segment(DATA, DATA_ATTRIBUTES, u32::MAX));
    vmsa.cs = segment(CODE, CODE_ATTRIBUTES, u32::MAX);
    vmsa.gdtr = SevSelector { base: start.gdt, ..segment(0, 0, GDT_LIMIT.into()) };
    vmsa.efer = EFER | EFER_SVME;
    (vmsa.cr0, vmsa.cr3, vmsa.cr4) = (CR0, start.cr3, CR4 | CR4_MCE);
    (vmsa.rip, vmsa.rsi) = (start.rip, start.boot_params);
    vmsa.sev_features = SevFeatures::new().with_snp(snp);
    vmsa
}

/// Sets the registers that all vCPUs have in common.
fn set_initial(vmsa: &mut SevVmsa) {
    vmsa.ldtr = segment(0, LDT_ATTRIBUTES, 0xffff);
    vmsa.tr = segment(0, TASK_ATTRIBUTES, 0xffff);
    (vmsa.dr6, vmsa.dr7, vmsa.rflags) = (DR6, DR7, RFLAGS);
    (vmsa.pat, vmsa.xcr0, vmsa.mxcsr, vmsa.x87_fcw) = (PAT, XCR0, MXCSR, X87_FCW);
}

fn set_data_segments(vmsa: &mut SevVmsa, data: SevSelector) {
    (vmsa.es, vmsa.ss, vmsa.ds, vmsa.fs, vmsa.gs) = (data, data, data, data, data);
}

/// Returns the registers of a further vCPU of an SEV-ES guest. It starts in real mode, in the page
/// of [`ap_page`] at address `page`. The first SIPI lets it run, but does not set its address.
pub fn ap_vmsa(page: u64) -> Box<SevVmsa> {
    // The allocation fails only without memory, as above.
    let mut vmsa = SevVmsa::new_box_zeroed().expect("4 KiB of memory");
    set_initial(&mut vmsa);
    set_data_segments(&mut vmsa, segment(0, REAL_DATA_ATTRIBUTES, REAL_LIMIT));
    let code = segment((page >> 4) as u16, REAL_CODE_ATTRIBUTES, REAL_LIMIT);
    vmsa.cs = SevSelector { base: page, ..code };
    (vmsa.gdtr, vmsa.idtr) = (segment(0, 0, REAL_LIMIT), segment(0, 0, REAL_LIMIT));
    (vmsa.efer, vmsa.cr0, vmsa.cr4) = (EFER_SVME, CR0_INIT, CR4_MCE);
    vmsa.rip = AP_JUMP.into();
    vmsa
}

/// Returns the page at which further vCPUs start. It has the AP jump table (IP and CS, which Linux
/// changes to its own), and a jump through the table. At first, the table points to a halt.
pub fn ap_page(page: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::from(AP_HALT)];
    bytes[..2].copy_from_slice(&AP_HALT.to_le_bytes());
    bytes[2..4].copy_from_slice(&((page >> 4) as u16).to_le_bytes());
    // ljmp *%cs:0
    bytes[usize::from(AP_JUMP)..][..5].copy_from_slice(&[0x2e, 0xff, 0x2e, 0, 0]);
    // cli; hlt; and a jump back to both.
    bytes.extend([0xfa, 0xf4, 0xeb, 0xfc]);
    bytes
}

fn segment(selector: u16, attrib: u16, limit: u32) -> SevSelector {
    SevSelector { selector, attrib, limit, base: 0 }
}

/// Returns the registers for platforms that do not measure them.
pub fn native(start: Start) -> Box<IgvmNativeVpContextX64> {
    // The allocation fails only without memory, as above.
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

/// Converts attributes to a descriptor's format, with four zero bits, 8 to 11, in the middle.
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
        assert_eq!(vmsa.cr4, native.cr4 | CR4_MCE);
        // Long mode needs PG, PE, PAE, LME and LMA, and L without D in the code segment.
        assert_eq!((vmsa.cr0 >> 31 & 1, vmsa.cr0 & 1, vmsa.cr4 >> 5 & 1), (1, 1, 1));
        assert_eq!(vmsa.cs.attrib >> 9 & 3, 1);
        assert_eq!(gdt().len(), GDT_LIMIT as usize + 1);
    }

    #[test]
    fn further_vcpus_jump_by_the_table() {
        let (vmsa, page) = (ap_vmsa(0x8_3000), ap_page(0x8_3000));
        assert_eq!((vmsa.cs.base, vmsa.cs.selector, vmsa.rip), (0x8_3000, 0x8300, 0x10));
        assert_eq!((vmsa.cr0, vmsa.cr4), (0x10, CR4_MCE));
        assert_eq!(&page[..4], [0x20, 0, 0, 0x83]);
        assert_eq!((page[0x10], page[0x21]), (0x2e, 0xf4));
    }
}
