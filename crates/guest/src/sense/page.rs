//! The records of all vCPUs, in memory that the kernel's side writes meanwhile.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use unspin_policy::activity::{Activity, Limits, State};

/// A vCPU's record; `struct vcpu` of bpf/sense.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Vcpu {
    /// Its signs of life.
    pub activity: Activity,
    /// Since when it idles; 0 while it does not.
    pub idle_since_ns: u64,
    /// Nanoseconds idle since the start, without the present stretch.
    pub idle_ns: u64,
    /// Nanoseconds off since the start.
    pub off_ns: u64,
    /// Off intervals since the start.
    pub offs: u64,
    /// Heartbeats since the start.
    pub beats: u64,
    /// Off intervals that the ring buffer had no room for.
    pub lost: u64,
    unused: [u64; 3],
}

/// All vCPUs' records.
pub struct Page {
    records: NonNull<Vcpu>,
    bytes: NonZeroUsize,
    vcpus: usize,
}

impl Page {
    pub(super) fn map(map: BorrowedFd<'_>, vcpus: usize) -> io::Result<Page> {
        let page = 4096;
        let bytes = (vcpus * size_of::<Vcpu>()).next_multiple_of(page).max(page);
        let bytes = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping of a map that the kernel keeps as long as the mapping;
        // it is as large as the kernel's own rounding of the map's size.
        let start =
            unsafe { mmap(None, bytes, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, map, 0)? };
        Ok(Page { records: start.cast(), bytes, vcpus })
    }

    /// How many vCPUs this machine can have.
    pub fn vcpus(&self) -> usize {
        self.vcpus
    }

    /// A vCPU's record now. Its fields are not from one instant.
    pub fn vcpu(&self, index: usize) -> Vcpu {
        assert!(index < self.vcpus, "vCPU {index} of {}", self.vcpus);
        // SAFETY: within the mapping, aligned as the kernel's array is; every bit
        // pattern is a valid record, and volatile reads allow for the kernel's writes.
        unsafe { self.records.add(index).read_volatile() }
    }

    /// What each vCPU does at `now_ns`.
    pub fn states(&self, limits: &Limits, now_ns: u64) -> Vec<State> {
        (0..self.vcpus).map(|index| self.vcpu(index).activity.look(limits, now_ns)).collect()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and nobody borrows from it.
        let _ = unsafe { munmap(self.records.cast(), self.bytes.get()) };
    }
}
