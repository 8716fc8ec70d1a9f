//! Emulated SEV-ES, on the lab's KVM with `kvm_amd.es_emu=1` (kernel/es-emu). The protocol is that
//! of SEV-ES, but nothing is encrypted.
//!
//! A guest has two memories. Pages that its page tables map with the C-bit are in the private
//! memory, which no device reaches. All others are in the shared memory.

use std::io;

use kvm_bindings::{
    kvm_cpuid_entry2, kvm_regs, kvm_run, kvm_segment, kvm_sev_cmd,
    sev_cmd_id_KVM_SEV_LAUNCH_UPDATE_VMSA,
};
use kvm_ioctls::{Kvm, VcpuFd, VmFd};

use igvm::snp_defs::{SevSelector, SevVmsa};
use unspin_cvm::layout::AP_START;

use crate::error::{Step, VmmError};
use crate::memory::{self, Memory};

/// The bit of a page table entry that marks a page as private.
const C_BIT: u32 = 47;
/// The address at which KVM maps private memory (KVM_X86_ES_EMU_PRIVATE).
const PRIVATE: u64 = 1 << C_BIT;
/// The VM type (KVM_X86_ES_EMU_VM).
const VM_TYPE: u64 = 31;
/// The first memory slot of private memory. Shared memory has the slots below it.
const FIRST_SLOT: u32 = 16;
/// The exit reason of a guest's request to a device (KVM_EXIT_X86_ES_EMU_GHCB).
pub const EXIT_GHCB: u32 = 1000;
/// Commands that concern GHCBs (KVM_X86_ES_EMU_GHCB_EXITS, _READ and _WRITE).
const GHCB_EXITS: u32 = 0x10000;
const GHCB_READ: u32 = 0x10001;
const GHCB_WRITE: u32 = 0x10002;
/// The most bytes that one call transfers.
pub const GHCB_CALL_BYTES: usize = 16;
/// The CPUID leaf of memory encryption.
const LEAF: u32 = 0x8000_001f;
const SEV_AND_SEV_ES: u32 = 1 << 1 | 1 << 3;
/// The number of address bits that the C-bit takes away, in its field of EBX.
const REDUCTION: u32 = 1 << 6;
/// The CPUID leaf whose EAX is the last extended leaf.
const LEAVES: u32 = 0x8000_0000;
/// EFER.SVME, which KVM sets itself because VMRUN requires it.
const EFER_SVME: u64 = 1 << 12;

/// Creates a VM of the emulated type.
pub fn create(kvm: &Kvm) -> Result<VmFd, VmmError> {
    kvm.create_vm_with_type(VM_TYPE).map_err(|error| match error.errno() {
        libc::EINVAL => VmmError::NoEsEmu,
        errno => {
            VmmError::Host { what: "create a VM", source: io::Error::from_raw_os_error(errno) }
        }
    })
}

/// Gives a VM its private memory.
pub fn register(private: &Memory, vm: &VmFd) -> Result<(), VmmError> {
    memory::register_at(private, vm, FIRST_SLOT, PRIVATE)
}

/// Adds the CPUID leaf by which a guest detects SEV-ES.
pub fn add_leaf(entries: &mut Vec<kvm_cpuid_entry2>) {
    entries.retain(|entry| entry.function != LEAF);
    for entry in entries.iter_mut().filter(|entry| entry.function == LEAVES) {
        entry.eax = entry.eax.max(LEAF);
    }
    entries.push(kvm_cpuid_entry2 {
        function: LEAF,
        eax: SEV_AND_SEV_ES,
        ebx: C_BIT | REDUCTION,
        ..Default::default()
    });
}

/// Hands the registers of `vcpus` vCPUs to the platform. From then on, only the platform sees them.
pub fn launch(vm: &VmFd, vcpus: u8) -> Result<(), VmmError> {
    let id = sev_cmd_id_KVM_SEV_LAUNCH_UPDATE_VMSA;
    let jump_table = if vcpus > 1 { AP_START } else { 0 };
    let mut command = kvm_sev_cmd { id, data: jump_table, ..Default::default() };
    vm.encrypt_op_sev(&mut command).step("launch the guest")
}

/// Asks KVM to exit with the GHCB when a guest addresses a device that KVM does not emulate.
pub fn take_ghcbs(vm: &VmFd) -> Result<(), VmmError> {
    let mut command = kvm_sev_cmd { id: GHCB_EXITS, data: 1, ..Default::default() };
    vm.encrypt_op_sev(&mut command).map_err(|error| match error.errno() {
        libc::EINVAL => VmmError::NoGhcb,
        errno => VmmError::Host {
            what: "get GHCBs from KVM",
            source: io::Error::from_raw_os_error(errno),
        },
    })
}

/// Returns the address of the GHCB after an exit for [`EXIT_GHCB`].
pub fn ghcb_of(run: &kvm_run) -> u64 {
    // SAFETY: KVM has written the first eight bytes of the union, and any bytes are a number.
    unsafe { run.__bindgen_anon_1.hypercall.nr }
}

/// The argument of the commands: struct kvm_x86_es_emu_ghcb.
#[repr(C)]
struct GhcbAccess {
    vcpu: u32,
    offset: u16,
    bytes: u16,
    data: [u8; GHCB_CALL_BYTES],
}

/// Reads at most [`GHCB_CALL_BYTES`] of a vCPU's GHCB.
pub fn read_ghcb(vm: &VmFd, vcpu: u8, offset: usize, bytes: &mut [u8]) -> io::Result<()> {
    let mut access = GhcbAccess::new(vcpu, offset, bytes.len());
    access.call(vm, GHCB_READ)?;
    bytes.copy_from_slice(&access.data[..bytes.len()]);
    Ok(())
}

/// Writes at most [`GHCB_CALL_BYTES`] of a vCPU's GHCB.
pub fn write_ghcb(vm: &VmFd, vcpu: u8, offset: usize, bytes: &[u8]) -> io::Result<()> {
    let mut access = GhcbAccess::new(vcpu, offset, bytes.len());
    access.data[..bytes.len()].copy_from_slice(bytes);
    access.call(vm, GHCB_WRITE)
}

impl GhcbAccess {
    fn new(vcpu: u8, offset: usize, bytes: usize) -> GhcbAccess {
        let (offset, bytes) = (offset as u16, bytes as u16);
        GhcbAccess { vcpu: vcpu.into(), offset, bytes, data: [0; GHCB_CALL_BYTES] }
    }

    fn call(&mut self, vm: &VmFd, id: u32) -> io::Result<()> {
        let data = &raw mut *self as u64;
        let mut command = kvm_sev_cmd { id, data, ..Default::default() };
        vm.encrypt_op_sev(&mut command).map_err(|error| io::Error::from_raw_os_error(error.errno()))
    }
}

/// Sets those registers of a vCPU that files of `unspin igvm build` contain.
pub fn set(vcpu: &VcpuFd, vmsa: &SevVmsa) -> Result<(), VmmError> {
    let mut sregs = vcpu.get_sregs().step("read a vCPU's registers")?;
    (sregs.cs, sregs.ss) = (segment(vmsa.cs), segment(vmsa.ss));
    (sregs.ds, sregs.es) = (segment(vmsa.ds), segment(vmsa.es));
    (sregs.fs, sregs.gs) = (segment(vmsa.fs), segment(vmsa.gs));
    (sregs.tr, sregs.ldt) = (segment(vmsa.tr), segment(vmsa.ldtr));
    (sregs.gdt.base, sregs.gdt.limit) = (vmsa.gdtr.base, vmsa.gdtr.limit as u16);
    (sregs.idt.base, sregs.idt.limit) = (vmsa.idtr.base, vmsa.idtr.limit as u16);
    (sregs.cr0, sregs.cr3, sregs.cr4) = (vmsa.cr0, vmsa.cr3, vmsa.cr4);
    sregs.efer = vmsa.efer & !EFER_SVME;
    vcpu.set_sregs(&sregs).step("set a vCPU's system registers")?;
    let (rip, rsp, rflags) = (vmsa.rip, vmsa.rsp, vmsa.rflags);
    let regs = kvm_regs { rip, rsp, rflags, rax: vmsa.rax, rsi: vmsa.rsi, ..Default::default() };
    vcpu.set_regs(&regs).step("set a vCPU's registers")
}

/// Converts a segment from the attributes of the VMCB: type, S, DPL and P are bits 0 to 7; AVL, L,
/// D and G are bits 8 to 11.
fn segment(selector: SevSelector) -> kvm_segment {
    let bit = |at: u32| (selector.attrib >> at & 1) as u8;
    kvm_segment {
        base: selector.base,
        limit: selector.limit,
        selector: selector.selector,
        type_: (selector.attrib & 0xf) as u8,
        s: bit(4),
        dpl: (selector.attrib >> 5 & 3) as u8,
        present: bit(7),
        avl: bit(8),
        l: bit(9),
        db: bit(10),
        g: bit(11),
        unusable: 0,
        padding: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_finds_sev_es() {
        let leaf = |function, eax| kvm_cpuid_entry2 { function, eax, ..Default::default() };
        let mut entries = vec![leaf(LEAVES, 0x8000_0008), leaf(LEAF, 0)];
        add_leaf(&mut entries);
        assert_eq!((entries[0].eax, entries.len()), (LEAF, 2));
        assert_eq!((entries[1].eax, entries[1].ebx), (10, 47 | 64));
    }

    #[test]
    fn a_call_has_the_kernels_layout() {
        assert_eq!(size_of::<GhcbAccess>(), 24);
        let access = GhcbAccess::new(3, 0x1f8, 8);
        assert_eq!((access.vcpu, access.offset, access.bytes), (3, 0x1f8, 8));
    }

    #[test]
    fn attributes_of_the_vmcb_are_spread() {
        let selector = SevSelector { selector: 0x10, attrib: 0xa9b, limit: u32::MAX, base: 0 };
        let code = segment(selector);
        assert_eq!((code.type_, code.s, code.present, code.dpl), (11, 1, 1, 0));
        assert_eq!((code.l, code.db, code.g), (1, 0, 1));
    }
}
