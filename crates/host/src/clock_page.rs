//! A page of memory that a guest and its host share (QEMU's ivshmem), to compare their clocks: the
//! host writes a number, and the guest answers with its time. Such an answer arrives within a
//! microsecond or so; an answer through a device takes hundreds.

use std::fs::{self, File};
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::posix_fallocate;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use unspin_wire::clock::mono_ns;

/// The file behind the page, in the VM's folder.
pub const FILE: &str = "clock.shm";
/// Size of the file, the least that the device accepts.
pub const FILE_BYTES: &str = "1M";

const PAGE: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// PCI vendor and device of ivshmem.
const ID: [&str; 2] = ["0x1af4", "0x1110"];
/// The sysfs file of the device's memory.
const MEMORY: &str = "resource2";
/// Number of reads of the other side's word before this thread yields the CPU.
const LOOKS: u32 = 2_000;

/// The layout of the page.
#[repr(C)]
struct Words {
    /// The number of the host's question, from 1 on; 0 before the first one.
    asked: AtomicU64,
    /// The number of the question that the guest answered last.
    answered: AtomicU64,
    /// The guest's answer: CLOCK_MONOTONIC, in nanoseconds.
    guest_ns: AtomicU64,
}

/// A mapping of the page.
pub struct ClockPage {
    words: NonNull<Words>,
}

// SAFETY: the page is used through atomics only.
unsafe impl Send for ClockPage {}

impl ClockPage {
    /// Maps the page on the host's side of a VM that runs in `folder`. QEMU creates the file
    /// without blocks. On a full disk, a write to the page would end this process by SIGBUS, so the
    /// file gets its blocks here.
    pub fn of_vm(folder: &Path) -> io::Result<ClockPage> {
        let file = open(&folder.join(FILE))?;
        match posix_fallocate(&file, 0, PAGE.get() as nix::libc::off_t) {
            // Some file systems do not support the call.
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENOSYS) => {}
            Err(error) => return Err(error.into()),
        }
        ClockPage::map(&file)
    }

    /// Maps the page on the guest's side.
    pub fn of_this_guest() -> io::Result<ClockPage> {
        let is_ours = |folder: &Path| {
            let reads = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
            ["vendor", "device"].map(reads).iter().map(|id| id.trim()).eq(ID)
        };
        let devices = fs::read_dir("/sys/bus/pci/devices")?.flatten().map(|entry| entry.path());
        let device = devices.into_iter().find(|folder| is_ours(folder));
        let device = device.ok_or_else(|| io::Error::other("no shared memory device"))?;
        fs::write(device.join("enable"), "1")?;
        ClockPage::map(&open(&device.join(MEMORY))?)
    }

    fn map(file: &File) -> io::Result<ClockPage> {
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping of a file that is at least as large.
        let page = unsafe { mmap(None, PAGE, access, MapFlags::MAP_SHARED, file, 0)? };
        Ok(ClockPage { words: page.cast() })
    }

    fn words(&self) -> &Words {
        // SAFETY: the page is mapped as long as `self` lives, it is aligned, and any bits are
        // valid.
        unsafe { self.words.as_ref() }
    }

    /// Clears earlier questions, on the host's side.
    pub fn reset(&self) {
        self.words().asked.store(0, Ordering::Relaxed);
        self.words().answered.store(0, Ordering::Release);
    }

    /// Asks up to `rounds` times on the host's side, until `limit` is over. Returns for each
    /// answered question the host's time before, the guest's time, and the host's time after.
    pub fn ask(&self, rounds: u64, limit: Duration) -> Vec<(u64, u64, u64)> {
        let words = self.words();
        let mut answers = Vec::new();
        let deadline = Instant::now() + limit;
        for round in 1..=rounds {
            let before_ns = mono_ns();
            words.asked.store(round, Ordering::Release);
            if !until(|| words.answered.load(Ordering::Acquire) == round, deadline) {
                break;
            }
            let after_ns = mono_ns();
            answers.push((before_ns, words.guest_ns.load(Ordering::Relaxed), after_ns));
        }
        answers
    }

    /// Answers up to `rounds` questions on the guest's side, until `limit` is over.
    pub fn answer(&self, rounds: u64, limit: Duration) {
        let words = self.words();
        let deadline = Instant::now() + limit;
        for round in 1..=rounds {
            if !until(|| words.asked.load(Ordering::Acquire) >= round, deadline) {
                return;
            }
            words.guest_ns.store(mono_ns(), Ordering::Relaxed);
            words.answered.store(round, Ordering::Release);
        }
    }
}

impl Drop for ClockPage {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no reference to it remains.
        let _ = unsafe { munmap(self.words.cast(), PAGE.get()) };
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

/// Waits for a condition that another CPU makes true. Returns false if the deadline passes.
fn until(mut holds: impl FnMut() -> bool, deadline: Instant) -> bool {
    loop {
        if (0..LOOKS).any(|_| holds()) {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_hosts_page_has_room_on_the_disk_before_it_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join(FILE)).unwrap();
        file.set_len(1 << 20).unwrap();
        let _page = ClockPage::of_vm(folder.path()).unwrap();
        assert!(file.metadata().unwrap().blocks() > 0);
    }

    #[test]
    fn every_answer_lies_between_its_question_and_its_arrival() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), vec![0; PAGE.get()]).unwrap();
        let page = || ClockPage::of_vm(folder.path()).unwrap();
        let (host, guest) = (page(), page());
        host.reset();
        let limit = Duration::from_secs(10);
        let answers = std::thread::scope(|scope| {
            scope.spawn(move || guest.answer(100, limit));
            host.ask(100, limit)
        });
        assert_eq!(answers.len(), 100);
        assert!(answers.iter().all(|(before, guest, after)| before <= guest && guest <= after));
    }

    #[test]
    fn a_guest_that_does_not_answer_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), vec![0; PAGE.get()]).unwrap();
        let page = ClockPage::of_vm(folder.path()).unwrap();
        assert!(page.ask(3, Duration::from_millis(20)).is_empty());
    }
}
