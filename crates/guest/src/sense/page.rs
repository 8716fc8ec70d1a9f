//! Memory that BPF programs write while it is read: the records of all vCPUs, and their latest
//! findings.

use std::io;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use unspin_policy::activity::{Activity, Off};

use crate::confine::online;

/// The types in the shared records: plain integers, laid out as in bpf/sense/sense.h.
///
/// # Safety
/// Every bit pattern must be a valid value.
pub(crate) unsafe trait Plain: Copy {}

/// The record of a vCPU; `struct vcpu` of bpf/sense/sense.h. Records never share a cache line.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, Default)]
pub struct Vcpu {
    /// The vCPU's signs of life.
    pub activity: Activity,
    /// The time at which the vCPU became idle, in nanoseconds; 0 if it is not idle.
    pub idle_since_ns: u64,
    /// The nanoseconds idle since the start, without the current idle interval.
    pub idle_ns: u64,
    /// The nanoseconds off since the start.
    pub off_ns: u64,
    /// The number of off intervals since the start.
    pub offs: u64,
    /// The number of heartbeats since the start.
    pub beats: u64,
    /// The number of spins of any length since the start.
    pub spins: u64,
    /// The nanoseconds spun since the start.
    pub spin_ns: u64,
    /// The time at which the next heartbeat is due, in nanoseconds; 0 if none is.
    pub beat_due_ns: u64,
    observing: u64,
    /// The samples of the vCPU's ticks.
    pub samples: Samples,
    /// The number of context switches until the last tick, or until the vCPU last became idle.
    pub switches: u64,
    /// The vCPU's stopper thread, until the same time.
    pub stopper: Stopper,
    last_off: Off,
}

/// The stopper thread of a vCPU, which migrates running tasks; `struct stopper` of
/// bpf/sense/sense.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Stopper {
    ran_ns: u64,
    off_ns: u64,
    /// The nanoseconds that the thread was on since the start.
    pub on_ns: u64,
}

/// Samples of a vCPU's activity, taken by its ticks; `struct samples` of bpf/sense/sense.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Samples {
    last_ns: u64,
    last_off_ns: u64,
    /// The number of samples since the start.
    pub count: u64,
    /// The nanoseconds that the vCPU spent spinning in the kernel, according to the samples.
    pub spin_ns: u64,
    /// The nanoseconds that the vCPU spent spinning in user space, according to the samples.
    pub user_spin_ns: u64,
    /// The number of samples in user mode.
    pub user_count: u64,
}

impl Vcpu {
    /// Returns the nanoseconds idle until `now_ns`. A vCPU that has been asked to run is not idle
    /// any more, even if it does not run yet.
    pub fn idle_until(&self, now_ns: u64) -> u64 {
        if self.idle_since_ns == 0 {
            return self.idle_ns;
        }
        let asked = [self.activity.woken_ns, self.activity.due_ns];
        let asked = asked.into_iter().filter(|asked| *asked > self.idle_since_ns);
        let until_ns = asked.fold(now_ns, u64::min);
        self.idle_ns + until_ns.saturating_sub(self.idle_since_ns)
    }
}

// SAFETY: integers only.
unsafe impl Plain for Vcpu {}

/// The most repeated readings of a record, after the first: a vCPU enters and leaves idle thousands
/// of times a second, and a reading takes less than a microsecond.
const READINGS: usize = 8;

/// Reads a record until two readings in a row agree on the vCPU's idle time. If the vCPU stops
/// idling meanwhile, a single reading may count the last idle interval twice, or not at all.
fn settled(mut read: impl FnMut() -> Vcpu) -> Vcpu {
    let idle = |vcpu: &Vcpu| (vcpu.idle_since_ns, vcpu.idle_ns);
    let mut vcpu = read();
    for _ in 0..READINGS {
        let before = std::mem::replace(&mut vcpu, read());
        if idle(&before) == idle(&vcpu) {
            break;
        }
    }
    vcpu
}

/// The values of a map, one per vCPU.
pub(crate) struct Shared<T> {
    values: NonNull<T>,
    bytes: NonZeroUsize,
    count: usize,
    of: PhantomData<T>,
}

// SAFETY: a mapping belongs to the process, not to a thread, and it is only read.
unsafe impl<T: Plain> Send for Shared<T> {}
// SAFETY: as above; each read copies, and allows for writes at any time.
unsafe impl<T: Plain> Sync for Shared<T> {}

impl<T: Plain> Shared<T> {
    pub(crate) fn map(map: BorrowedFd<'_>, count: usize) -> io::Result<Shared<T>> {
        let page = 4096;
        let bytes = (count * size_of::<T>()).next_multiple_of(page).max(page);
        let bytes = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: this is a new mapping of a map that the kernel keeps as long as the mapping. It
        // is as large as the map, whose size the kernel rounds up in the same way.
        let start =
            unsafe { mmap(None, bytes, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, map, 0)? };
        Ok(Shared { values: start.cast(), bytes, count, of: PhantomData })
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Reads a field: of value `index`, at `offset` bytes.
    ///
    /// # Panics
    /// The field is not within the value, or not aligned.
    pub(crate) fn read<F: Plain>(&self, index: usize, offset: usize) -> F {
        assert!(index < self.count, "vCPU {index} of {}", self.count);
        assert!(offset + size_of::<F>() <= size_of::<T>() && offset % align_of::<F>() == 0);
        // SAFETY: the field is within the mapping and aligned, as was just checked. Every bit
        // pattern is valid, and a volatile read allows for the kernel's writes.
        unsafe { self.values.add(index).cast::<u8>().add(offset).cast::<F>().read_volatile() }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: `map` has made the mapping with this length, and nobody borrows from it.
        let _ = unsafe { munmap(self.values.cast(), self.bytes.get()) };
    }
}

/// Returns one more than the number of the last vCPU that is online now.
fn behind_last() -> Option<usize> {
    Some(*online().ok()?.last()? as usize + 1)
}

/// Returns those of the first `count` vCPUs that are not in `online`, which is in ascending order.
fn beside(count: usize, online: &[u32]) -> Vec<u16> {
    let is_offline = |vcpu: &u16| online.binary_search(&u32::from(*vcpu)).is_err();
    (0..count as u16).filter(is_offline).collect()
}

/// The records of all vCPUs that this machine can have.
pub struct Page {
    records: Shared<Vcpu>,
    shown: usize,
}

impl Page {
    /// Shows the vCPUs up to the last one that is online now. Many machines could have far more
    /// vCPUs, and those would make every share of their time too small.
    pub(super) fn new(records: Shared<Vcpu>) -> Page {
        Page { shown: records.count().min(behind_last().unwrap_or(usize::MAX)), records }
    }

    /// Also shows the vCPUs that have come online since.
    pub(super) fn show_added(&mut self) {
        let online = behind_last().unwrap_or(0);
        self.shown = self.records.count().min(online).max(self.shown);
    }

    /// Returns the shown vCPUs that are offline now, in order; none if the kernel does not list
    /// them.
    pub fn offline(&self) -> Vec<u16> {
        online().map(|online| beside(self.shown, &online)).unwrap_or_default()
    }

    /// Returns the number of vCPUs that are shown.
    pub fn vcpus(&self) -> usize {
        self.shown
    }

    /// Returns a vCPU's current record. Its fields are not from one instant, but `idle_since_ns`
    /// and `idle_ns` belong together. Take the time for [`Vcpu::idle_until`] before this call: the
    /// vCPU may stop idling right after it.
    pub fn vcpu(&self, index: usize) -> Vcpu {
        settled(|| self.records.read(index, 0))
    }

    /// Returns the number of a vCPU's heartbeats since the start.
    pub(super) fn beats(&self, index: usize) -> u64 {
        self.records.read(index, std::mem::offset_of!(Vcpu, beats))
    }

    /// Returns the current records of all vCPUs that are shown.
    pub fn all(&self) -> Vec<Vcpu> {
        (0..self.vcpus()).map(|index| self.vcpu(index)).collect()
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::btf::types::Struct;
    use libbpf_rs::btf::{Btf, HasSize};

    use super::*;

    #[test]
    fn the_record_is_that_of_all_programs() {
        for object in [
            concat!(env!("OUT_DIR"), "/sense.bpf.o"),
            concat!(env!("OUT_DIR"), "/sense-own-timers.bpf.o"),
            concat!(env!("OUT_DIR"), "/watch.bpf.o"),
            concat!(env!("OUT_DIR"), "/account.bpf.o"),
            concat!(env!("OUT_DIR"), "/run.bpf.o"),
        ] {
            let btf = Btf::from_path(object).expect("its types");
            let sizes = [
                ("vcpu", size_of::<Vcpu>()),
                ("activity", size_of::<Activity>()),
                ("activity_off", size_of::<Off>()),
                ("samples", size_of::<Samples>()),
                ("stopper", size_of::<Stopper>()),
            ];
            for (name, size) in sizes {
                let of_program = btf.type_by_name::<Struct<'_>>(name).expect(name);
                assert_eq!(of_program.size(), size, "struct {name} of {object}");
            }
        }
    }

    #[test]
    fn vcpus_between_others_can_be_offline() {
        assert_eq!(beside(7, &[0, 2, 4, 6]), [1, 3, 5], "without every second hyperthread");
        assert!(beside(2, &[0, 1]).is_empty());
    }

    #[test]
    fn a_stretch_idle_counts_once_while_it_ends() {
        let record = |idle_since_ns, idle_ns| Vcpu { idle_since_ns, idle_ns, ..Vcpu::default() };
        let mut readings = [(1_000, 50), (1_000, 750), (0, 750), (0, 750)].into_iter();
        let read = || readings.next().map(|(since, idle)| record(since, idle)).unwrap_or_default();
        assert_eq!(settled(read).idle_until(1_800), 750);
        let mut reads = 0;
        settled(|| {
            reads += 1;
            record(reads, 0)
        });
        assert_eq!(reads, 1 + READINGS as u64, "one that never settles holds up nobody");
    }

    #[test]
    fn a_vcpu_is_idle_until_it_is_asked_to_run() {
        let halted = |woken_ns, due_ns| Vcpu {
            activity: Activity { woken_ns, due_ns, ..Activity::default() },
            idle_since_ns: 1_000,
            idle_ns: 50,
            ..Vcpu::default()
        };
        assert_eq!(halted(0, 0).idle_until(1_700), 750);
        assert_eq!(halted(1_200, 0).idle_until(1_700), 250);
        assert_eq!(halted(1_200, 1_100).idle_until(1_700), 150);
        assert_eq!(halted(0, 900).idle_until(1_700), 750);
        assert_eq!(Vcpu { idle_since_ns: 0, ..halted(0, 0) }.idle_until(1_700), 50);
    }
}
