//! The guest's memory.

use std::io;

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::VmFd;
use unspin_cvm::layout::{HIGH_MEMORY, LOW_MEMORY_END};
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

use crate::error::{Step, VmmError};

/// Memory that is mapped into this process.
pub type Memory = vm_memory::GuestMemoryMmap<()>;

/// Memory of that size, all zeros. What exceeds 3 GiB begins at 4 GiB.
pub fn new(bytes: u64) -> Result<Memory, VmmError> {
    let low = bytes.min(LOW_MEMORY_END);
    let mut ranges = vec![(GuestAddress(0), low as usize)];
    if bytes > low {
        ranges.push((GuestAddress(HIGH_MEMORY), (bytes - low) as usize));
    }
    Memory::from_ranges(&ranges)
        .map_err(|error| io::Error::other(error.to_string()))
        .step("map the guest's memory")
}

/// Writes a guest's contents, which must lie inside the memory.
pub fn write(memory: &Memory, gpa: u64, bytes: &[u8]) -> Result<(), VmmError> {
    memory
        .write_slice(bytes, GuestAddress(gpa))
        .map_err(|error| io::Error::other(error.to_string()))
        .step("fill the guest's memory")
}

/// Gives the memory to a VM.
pub fn register(memory: &Memory, vm: &VmFd) -> Result<(), VmmError> {
    register_at(memory, vm, 0, 0)
}

/// Gives the memory to a VM, which has it from that address on, and in slots from that one on.
pub fn register_at(memory: &Memory, vm: &VmFd, slot: u32, base: u64) -> Result<(), VmmError> {
    for (slot, region) in (slot..).zip(memory.iter()) {
        let address = memory.get_host_address(region.start_addr());
        let address = address.map_err(|error| io::Error::other(error.to_string()));
        let slot = kvm_userspace_memory_region {
            slot,
            flags: 0,
            guest_phys_addr: base + region.start_addr().raw_value(),
            memory_size: region.len(),
            userspace_addr: address.step("find the guest's memory")? as u64,
        };
        // SAFETY: the mapping has that size, and `vm::run` drops the VM before the memory.
        unsafe { vm.set_user_memory_region(slot) }.step("give memory to the VM")?;
    }
    Ok(())
}
