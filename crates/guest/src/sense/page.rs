//! Memory that the kernel's side writes meanwhile: the records of all vCPUs, and what they
//! found last.

use std::io;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use unspin_policy::activity::{Activity, Off};

use crate::confine::online;

/// What the shared records are made of: plain integers, as bpf/sense/sense.h lays them out.
///
/// # Safety
/// Every bit pattern must be a valid value.
pub(crate) unsafe trait Plain: Copy {}

/// A vCPU's record; `struct vcpu` of bpf/sense/sense.h. No two share a cache line.
#[repr(C, align(64))]
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
    /// Spins of any length since the start.
    pub spins: u64,
    /// Nanoseconds spun since the start.
    pub spin_ns: u64,
    /// When its heartbeat is due; 0: none is.
    pub beat_due_ns: u64,
    observing: u64,
    /// What its ticks found.
    pub samples: Samples,
    /// Context switches by its last tick, or when it went idle.
    pub switches: u64,
    /// Until then, the thread that moves its tasks which run.
    pub stopper: Stopper,
    last_off: Off,
}

/// The thread of a vCPU that moves tasks which run; `struct stopper` of bpf/sense/sense.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Stopper {
    ran_ns: u64,
    off_ns: u64,
    /// Nanoseconds on since the start.
    pub on_ns: u64,
}

/// What ticks found a vCPU doing; `struct samples` of bpf/sense/sense.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Samples {
    last_ns: u64,
    last_off_ns: u64,
    /// How many looked since the start.
    pub count: u64,
    /// Nanoseconds that they found spent spinning in the kernel.
    pub spin_ns: u64,
    /// Nanoseconds that they found spent spinning in user space.
    pub user_spin_ns: u64,
    /// How many of them found it in user mode.
    pub user_count: u64,
}

impl Vcpu {
    /// Nanoseconds idle until `now_ns`. One that was asked to run is idle no longer, even if
    /// it does not run yet.
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

/// A record is read so many times at most: a vCPU comes and goes thousands of times a second, and
/// reading takes less than a microsecond.
const READINGS: usize = 8;

/// Reads a record until it says twice in a row how long its vCPU idled: of one that stops idling
/// meanwhile, a single reading may count the last stretch twice, or not at all.
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

/// A map's values, one a vCPU.
pub(crate) struct Shared<T> {
    values: NonNull<T>,
    bytes: NonZeroUsize,
    count: usize,
    of: PhantomData<T>,
}

// SAFETY: a mapping is the process's, not a thread's, and it is only read.
unsafe impl<T: Plain> Send for Shared<T> {}
// SAFETY: as above; each read copies, and allows for writes at any time.
unsafe impl<T: Plain> Sync for Shared<T> {}

impl<T: Plain> Shared<T> {
    pub(crate) fn map(map: BorrowedFd<'_>, count: usize) -> io::Result<Shared<T>> {
        let page = 4096;
        let bytes = (count * size_of::<T>()).next_multiple_of(page).max(page);
        let bytes = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping of a map that the kernel keeps as long as the mapping;
        // it is as large as the kernel's own rounding of the map's size.
        let start =
            unsafe { mmap(None, bytes, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, map, 0)? };
        Ok(Shared { values: start.cast(), bytes, count, of: PhantomData })
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// A place among the values: of value `index`, `offset` bytes in.
    ///
    /// # Panics
    /// Where it is not within the value, or not aligned.
    pub(crate) fn read<F: Plain>(&self, index: usize, offset: usize) -> F {
        assert!(index < self.count, "vCPU {index} of {}", self.count);
        assert!(offset + size_of::<F>() <= size_of::<T>() && offset % align_of::<F>() == 0);
        // SAFETY: within the mapping and aligned, as was just checked; every bit pattern
        // is valid, and a volatile read allows for the kernel's writes.
        unsafe { self.values.add(index).cast::<u8>().add(offset).cast::<F>().read_volatile() }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and nobody borrows from it.
        let _ = unsafe { munmap(self.values.cast(), self.bytes.get()) };
    }
}

/// The number behind that of the last vCPU that is online now.
fn behind_last() -> Option<usize> {
    Some(*online().ok()?.last()? as usize + 1)
}

/// Those of the first `count` vCPUs that are not among these, which are in order.
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
    /// Shows the vCPUs up to the last one that is online now: many machines can have far more, of
    /// which every share of their time would be a share too little.
    pub(super) fn new(records: Shared<Vcpu>) -> Page {
        Page { shown: records.count().min(behind_last().unwrap_or(usize::MAX)), records }
    }

    /// Shows also those that have come online since.
    pub(super) fn show_added(&mut self) {
        let online = behind_last().unwrap_or(0);
        self.shown = self.records.count().min(online).max(self.shown);
    }

    /// Those of the vCPUs shown that are offline now, in order; none where the kernel does not say.
    pub fn offline(&self) -> Vec<u16> {
        online().map(|online| beside(self.shown, &online)).unwrap_or_default()
    }

    /// How many vCPUs are shown.
    pub fn vcpus(&self) -> usize {
        self.shown
    }

    /// A vCPU's record now. Its fields are not from one instant, but since when it idles and how
    /// long it did go together. An instant for [`Vcpu::idle_until`] is one before this call: the
    /// vCPU may stop idling right after it.
    pub fn vcpu(&self, index: usize) -> Vcpu {
        settled(|| self.records.read(index, 0))
    }

    /// A vCPU's heartbeats since the start.
    pub(super) fn beats(&self, index: usize) -> u64 {
        self.records.read(index, std::mem::offset_of!(Vcpu, beats))
    }

    /// The records now of all vCPUs that are shown.
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
