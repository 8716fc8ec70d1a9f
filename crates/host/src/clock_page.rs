//! A page of memory that a guest and its host share (QEMU's ivshmem), to compare their
//! clocks: the host writes a number, the guest answers with its time. Such an answer is
//! there within a microsecond or so, where one through a device takes hundreds.

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

/// The file behind the page, in the folder of the VM.
pub const FILE: &str = "clock.shm";
/// Size of the file: the least that the device takes.
pub const FILE_BYTES: &str = "1M";

const PAGE: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// PCI vendor and device of ivshmem.
const ID: [&str; 2] = ["0x1af4", "0x1110"];
/// The memory of the device.
const MEMORY: &str = "resource2";
/// Looks at the other side's word, before the CPU is offered to others.
const LOOKS: u32 = 2_000;

/// What lies on the page.
#[repr(C)]
struct Words {
    /// The host's question, counted from 1; 0 before the first one.
    asked: AtomicU64,
    /// The question that the guest answered last.
    answered: AtomicU64,
    /// Its answer: CLOCK_MONOTONIC, nanoseconds.
    guest_ns: AtomicU64,
}

/// The page, mapped.
pub struct ClockPage {
    words: NonNull<Words>,
}

// SAFETY: the page is used through atomics only.
unsafe impl Send for ClockPage {}

impl ClockPage {
    /// The host's side of a VM that runs in `folder`. QEMU leaves its file without blocks: on a
    /// full disk, writing to the page would end us by SIGBUS.
    pub fn of_vm(folder: &Path) -> io::Result<ClockPage> {
        let file = open(&folder.join(FILE))?;
        match posix_fallocate(&file, 0, PAGE.get() as nix::libc::off_t) {
            // Some file systems cannot.
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENOSYS) => {}
            Err(error) => return Err(error.into()),
        }
        ClockPage::map(&file)
    }

    /// The guest's side.
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
        // SAFETY: mapped as long as we live, aligned, and any bits are valid.
        unsafe { self.words.as_ref() }
    }

    /// The host's side: forgets what was asked before.
    pub fn reset(&self) {
        self.words().asked.store(0, Ordering::Relaxed);
        self.words().answered.store(0, Ordering::Release);
    }

    /// The host's side: asks so many times, as long as time is left. Of each question that
    /// was answered, our time before, the guest's, and our time after.
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

    /// The guest's side: answers so many questions, as long as time is left.
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
        // SAFETY: our own mapping, and nobody refers to it any more.
        let _ = unsafe { munmap(self.words.cast(), PAGE.get()) };
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

/// Waits for something that another CPU does; false where it takes too long.
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
