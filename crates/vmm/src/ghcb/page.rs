//! The two ways to access a GHCB.

use std::io;
use std::sync::atomic::AtomicU64;

use kvm_ioctls::VmFd;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, VolatileSlice};

use crate::access::counters::add;
use crate::es_emu::{self, GHCB_CALL_BYTES};
use crate::memory::Memory;

/// A page that the guest may write to at the same time, so that two reads of a field may differ.
pub trait Page {
    /// Reads bytes from `offset` on.
    fn read(&mut self, offset: usize, bytes: &mut [u8]) -> io::Result<()>;
    /// Writes bytes from `offset` on.
    fn write(&mut self, offset: usize, bytes: &[u8]) -> io::Result<()>;
}

/// The bytes of a page.
const PAGE_BYTES: usize = 4096;

/// A page in mapped memory.
#[derive(Debug)]
pub struct Mapped<'a> {
    page: VolatileSlice<'a>,
}

impl<'a> Mapped<'a> {
    /// Returns the page at address `gpa` of the guest's shared memory. Its place in the mapping is
    /// looked up here, once for all accesses. Fails if the memory does not contain the whole page.
    pub fn new(memory: &'a Memory, gpa: u64) -> io::Result<Self> {
        let page = memory.get_slice(GuestAddress(gpa), PAGE_BYTES).map_err(io::Error::other)?;
        Ok(Mapped { page })
    }
}

impl Page for Mapped<'_> {
    fn read(&mut self, offset: usize, bytes: &mut [u8]) -> io::Result<()> {
        self.page.read_slice(bytes, offset).map_err(io::Error::other)
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        self.page.write_slice(bytes, offset).map_err(io::Error::other)
    }
}

/// A page that is accessed by calls into KVM, which knows the address.
#[derive(Debug)]
pub struct Calls<'a> {
    vm: &'a VmFd,
    vcpu: u8,
    calls: &'a AtomicU64,
}

impl<'a> Calls<'a> {
    /// Returns the page of vCPU `vcpu`, which adds its calls to `calls`.
    pub fn new(vm: &'a VmFd, vcpu: u8, calls: &'a AtomicU64) -> Self {
        Calls { vm, vcpu, calls }
    }
}

impl Page for Calls<'_> {
    fn read(&mut self, offset: usize, bytes: &mut [u8]) -> io::Result<()> {
        let offsets = (offset..).step_by(GHCB_CALL_BYTES);
        for (part, offset) in bytes.chunks_mut(GHCB_CALL_BYTES).zip(offsets) {
            add(self.calls, 1);
            es_emu::read_ghcb(self.vm, self.vcpu, offset, part)?;
        }
        Ok(())
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let offsets = (offset..).step_by(GHCB_CALL_BYTES);
        for (part, offset) in bytes.chunks(GHCB_CALL_BYTES).zip(offsets) {
            add(self.calls, 1);
            es_emu::write_ghcb(self.vm, self.vcpu, offset, part)?;
        }
        Ok(())
    }
}

/// A page with a count of its accesses.
#[derive(Debug)]
pub struct Counted<P> {
    /// The page.
    pub page: P,
    /// The number of reads and writes.
    pub accesses: u64,
}

impl<P: Page> Page for Counted<P> {
    fn read(&mut self, offset: usize, bytes: &mut [u8]) -> io::Result<()> {
        self.accesses += 1;
        self.page.read(offset, bytes)
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        self.accesses += 1;
        self.page.write(offset, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;

    #[test]
    fn a_mapped_page_is_a_part_of_memory() {
        let memory = memory::new(2 << 20).unwrap();
        let mut page = Mapped::new(&memory, 0x3000).unwrap();
        page.write(0x1f8, &[1, 2, 3]).unwrap();
        let mut bytes = [0; 4];
        memory.read_slice(&mut bytes, GuestAddress(0x31f7)).unwrap();
        assert_eq!(bytes, [0, 1, 2, 3]);
        page.read(0x1f9, &mut bytes[..2]).unwrap();
        assert_eq!(bytes[..2], [2, 3]);
    }

    #[test]
    fn a_page_that_is_not_all_in_memory_is_out_of_reach() {
        let memory = memory::new(2 << 20).unwrap();
        for gpa in [(2 << 20) - 0xfff, 2 << 20, 1 << 47, u64::MAX - 0xfff] {
            assert!(Mapped::new(&memory, gpa).is_err(), "{gpa:#x}");
        }
        let mut page = Mapped::new(&memory, 0x3000).unwrap();
        assert!(page.read(0xff8, &mut [0; 16]).is_err());
        assert!(page.write(0xff8, &[0; 16]).is_err());
    }
}
