//! The guest's memory.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::VmFd;
use unspin_cvm::layout::{HIGH_MEMORY, LOW_MEMORY_END};
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{
    Address, Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryRegion,
    GuestRegionMmap,
};

use crate::access::gate::{Mprotect, die_of_faults};
use crate::access::key::Key;
use crate::access::table::{OnFailure, Table};
use crate::access::{DeviceMemory, Policy};
use crate::error::{Step, VmmError};

/// Memory that is mapped into this process.
pub type Memory = vm_memory::GuestMemoryMmap<()>;

/// A guest's memory, initially all zeros. The part beyond 3 GiB begins at 4 GiB.
#[derive(Debug)]
pub struct Ram {
    /// The mapping that the loader and the vCPUs use.
    pub guest: Memory,
    /// The mapping that the devices' threads use.
    pub devices: DeviceMemory,
    /// The protection key of `guest`, if the policy restricts access and the processor has keys.
    pub key: Option<Key>,
}

impl Ram {
    /// Creates `bytes` of memory. With [`Policy::Off`], both mappings are the same.
    pub fn new(bytes: u64, policy: &Policy, on_failure: OnFailure) -> Result<Ram, VmmError> {
        if *policy == Policy::Off {
            let guest = new(bytes)?;
            return Ok(Ram { devices: guest.clone().into(), guest, key: None });
        }
        die_of_faults();
        let file = Arc::new(memfd(bytes).step("create the guest's memory")?);
        let guest = map(&file, bytes, libc::PROT_READ | libc::PROT_WRITE)?;
        let devices = map(&file, bytes, libc::PROT_NONE)?;
        let parts: Vec<_> =
            devices.iter().map(|region| (region.as_ptr(), region.size() as u64)).collect();
        // SAFETY: the gate lives in the table, together with the mapping. No reference points into
        // the mapping: all accesses are volatile, or system calls.
        let gate = unsafe { Mprotect::new(&parts) };
        let regions = ranges(bytes).map(|(gpa, bytes)| gpa.0..gpa.0 + bytes as u64);
        let table = Table::new(regions.collect(), policy.clone(), Box::new(gate), on_failure);
        let key = lock_out(&guest)?;
        let devices = DeviceMemory::restricted(devices, Arc::new(table));
        grant_ahead(&devices, policy)?;
        Ok(Ram { guest, devices, key })
    }
}

/// The private memory of a guest under emulated SEV-ES. KVM checks the thread's protection keys
/// when it faults in a page for the guest. A vCPU's thread therefore needs the right while the
/// guest runs, and only then.
#[derive(Debug)]
pub struct Private {
    /// The mapping that the loader uses.
    pub memory: Memory,
    /// The mapping's protection key, if the processor has keys.
    pub key: Option<Key>,
}

impl Private {
    /// Creates `bytes` of private memory, which the calling thread may use until it denies itself
    /// the key.
    pub fn new(bytes: u64) -> Result<Private, VmmError> {
        die_of_faults();
        let memory = new(bytes)?;
        let key = lock_out(&memory)?;
        Ok(Private { memory, key })
    }
}

/// Assigns a new key to a mapping, if the processor has keys.
fn lock_out(guest: &Memory) -> Result<Option<Key>, VmmError> {
    let Some(key) = Key::allocate() else { return Ok(None) };
    for region in guest.iter() {
        // SAFETY: no reference points into the mapping: all accesses are volatile.
        unsafe { key.assign(region.as_ptr(), region.size()) }.step("protect the guest's memory")?;
    }
    Ok(Some(key))
}

/// Opens the pages that the policy grants at the start.
fn grant_ahead(devices: &DeviceMemory, policy: &Policy) -> Result<(), VmmError> {
    let (Policy::Pregrant(range), Some(table)) = (policy, devices.table()) else { return Ok(()) };
    let pages = match range {
        None => Some(0..table.pages()),
        Some(range) => table.locate(range.start, range.end.saturating_sub(range.start)),
    };
    let outside = || VmmError::Pregrant { range: range.clone().unwrap_or_default() };
    table.open_ahead(pages.ok_or_else(outside)?).step("grant pages to devices")
}

/// Returns the guest-physical parts of `bytes` of memory.
fn ranges(bytes: u64) -> impl Iterator<Item = (GuestAddress, usize)> {
    let low = bytes.min(LOW_MEMORY_END);
    let parts =
        [(GuestAddress(0), low as usize), (GuestAddress(HIGH_MEMORY), (bytes - low) as usize)];
    parts.into_iter().filter(|(_, bytes)| *bytes > 0)
}

/// Maps `bytes` of private memory of this process, all zeros.
pub fn new(bytes: u64) -> Result<Memory, VmmError> {
    mapped(Memory::from_ranges(&ranges(bytes).collect::<Vec<_>>()))
}

/// Creates a file in memory. Seals keep its size, so that no access raises SIGBUS.
fn memfd(bytes: u64) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"guest".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(bytes)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the argument is a number.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Maps a file as `bytes` of shared memory.
fn map(file: &Arc<File>, bytes: u64, protection: libc::c_int) -> Result<Memory, VmmError> {
    let (mut regions, mut offset) = (Vec::new(), 0);
    for (gpa, bytes) in ranges(bytes) {
        let region = MmapRegionBuilder::new(bytes)
            .with_mmap_prot(protection)
            .with_mmap_flags(libc::MAP_SHARED | libc::MAP_NORESERVE)
            .with_file_offset(FileOffset::from_arc(Arc::clone(file), offset))
            .build();
        let region = GuestRegionMmap::new(mapped(region)?, gpa);
        regions.push(mapped(region.ok_or("an address overflows"))?);
        offset += bytes as u64;
    }
    mapped(Memory::from_regions(regions))
}

fn mapped<T, E: ToString>(result: Result<T, E>) -> Result<T, VmmError> {
    result.map_err(|error| io::Error::other(error.to_string())).step("map the guest's memory")
}

/// Writes a guest's contents, which must lie inside the memory.
pub fn write(memory: &Memory, gpa: u64, bytes: &[u8]) -> Result<(), VmmError> {
    memory
        .write_slice(bytes, GuestAddress(gpa))
        .map_err(|error| io::Error::other(error.to_string()))
        .step("fill the guest's memory")
}

/// Registers the memory with a VM.
pub fn register(memory: &Memory, vm: &VmFd) -> Result<(), VmmError> {
    register_at(memory, vm, 0, 0)
}

/// Registers the memory with a VM: in slots from `slot` on, at addresses from `base` on.
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
