//! The objects that a thread holds, and the ways to hold them.

use std::cell::UnsafeCell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The object that the holder holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Hold {
    /// A kernel mutex: that of an open file's position, over a long read
    Mutex,
    /// A kernel spinlock: a futex hash bucket's, by wake-ups that look at many sleepers
    Spinlock,
    /// A mutex of glibc
    Futex,
    /// Nothing; the waiter makes the other's vCPU acknowledge a call (membarrier)
    Ipi,
}

/// Size of the file, the most that one read takes.
const FILE_BYTES: usize = 64 << 20;
/// Size of the samples that measure the speed of reads.
const SAMPLE_BYTES: usize = 1 << 20;
/// A glibc mutex is not fair. After each release, its holder leaves it alone for up to this time,
/// until a woken waiter has it.
const FUTEX_GAP: Duration = Duration::from_millis(20);
/// Sleeping threads that the holder of a spinlock visits each time, so that each hold takes some
/// time.
pub const SLEEPERS: usize = 300;
/// Futex bits: the one that the sleepers wait for, and one that no thread waits for.
const SLEEPERS_BIT: u32 = 1;
const NOBODYS_BIT: u32 = 2;
/// A value that the futex word never has.
const OTHER_VALUE: u32 = 7;
/// Commands of include/uapi/linux/membarrier.h.
const MEMBARRIER_PRIVATE_EXPEDITED: i32 = 1 << 3;
const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

/// The state that holder and waiter share.
pub struct Shared {
    what: Hold,
    hold: Duration,
    /// Two handles of one open file, because the kernel locks the position of a shared file only.
    files: Option<[File; 2]>,
    bytes: usize,
    /// The futex word: 0 while the sleepers sleep.
    word: AtomicU32,
    /// Whether the waiter wants the mutex.
    wanted: AtomicBool,
    mutex: UnsafeCell<libc::pthread_mutex_t>,
}

// SAFETY: the mutex is used through pthread functions only, which allow for other threads.
unsafe impl Sync for Shared {}

impl Shared {
    /// Returns a free lock. For a kernel mutex, it has a file whose read takes `hold`.
    pub fn new(what: Hold, hold: Duration) -> io::Result<Shared> {
        let mut shared = Shared {
            what,
            hold,
            files: None,
            bytes: 0,
            word: AtomicU32::new(0),
            wanted: AtomicBool::new(false),
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
        };
        match what {
            Hold::Mutex => {
                let mut file = tempfile()?;
                shared.bytes = bytes_read_in(&mut file, hold)?;
                shared.files = Some([file.try_clone()?, file]);
            }
            Hold::Ipi => membarrier(MEMBARRIER_REGISTER_PRIVATE_EXPEDITED)?,
            Hold::Spinlock | Hold::Futex => {}
        }
        Ok(shared)
    }

    /// Returns the buffer into which [`Shared::hold`] reads. All of it is in memory already, like
    /// the samples' buffer, because page faults would make the read longer.
    pub fn buffer(&self) -> Vec<u8> {
        vec![1; self.bytes]
    }

    /// Takes the lock, keeps it for the time `hold` of `new`, and releases it.
    pub fn hold(&self, buffer: &mut [u8]) -> io::Result<()> {
        match (self.what, &self.files) {
            (Hold::Mutex, Some([file, _])) => {
                let mut file = file;
                file.seek(SeekFrom::Start(0))?;
                file.read_exact(buffer)
            }
            (Hold::Futex, _) => {
                self.with_mutex(|| work(self.hold));
                let unlocked = Instant::now();
                while self.wanted.load(Ordering::Relaxed) && unlocked.elapsed() < FUTEX_GAP {
                    std::hint::spin_loop();
                }
                Ok(())
            }
            (Hold::Spinlock, _) => self.wake_nobody(),
            _ => {
                work(self.hold);
                Ok(())
            }
        }
    }

    /// Takes the lock once as the waiter.
    pub fn wait(&self) -> io::Result<()> {
        match (self.what, &self.files) {
            (Hold::Mutex, Some([_, file])) => {
                let mut file = file;
                file.stream_position().map(|_| ())
            }
            (Hold::Futex, _) => {
                self.wanted.store(true, Ordering::Relaxed);
                self.with_mutex(|| self.wanted.store(false, Ordering::Relaxed));
                Ok(())
            }
            (Hold::Spinlock, _) => self.fail_to_sleep(),
            _ => membarrier(MEMBARRIER_PRIVATE_EXPEDITED),
        }
    }

    fn with_mutex(&self, inside: impl FnOnce()) {
        // SAFETY: the mutex was initialised, and the thread that locked it unlocks it.
        unsafe {
            libc::pthread_mutex_lock(self.mutex.get());
            inside();
            libc::pthread_mutex_unlock(self.mutex.get());
        }
    }

    /// Sleeps until [`Shared::wake`], as one of the sleepers that the holder of a spinlock visits.
    pub fn sleep(&self) {
        while self.word.load(Ordering::Acquire) == 0 {
            // Whatever ends the sleep, the word decides.
            let _ = self.futex(libc::FUTEX_WAIT_BITSET, 0, SLEEPERS_BIT);
        }
    }

    /// Wakes all sleepers for good.
    pub fn wake(&self) {
        self.word.store(1, Ordering::Release);
        let _ = self.futex(libc::FUTEX_WAKE_BITSET, i32::MAX as u32, SLEEPERS_BIT);
    }

    /// Wakes the threads that wait for a bit for which none waits. The kernel visits each sleeper
    /// with the hash bucket locked.
    fn wake_nobody(&self) -> io::Result<()> {
        self.futex(libc::FUTEX_WAKE_BITSET, i32::MAX as u32, NOBODYS_BIT)
    }

    /// Asks to sleep on a futex that has another value. The kernel checks the value with the hash
    /// bucket locked, and returns.
    fn fail_to_sleep(&self) -> io::Result<()> {
        match self.futex(libc::FUTEX_WAIT_BITSET, OTHER_VALUE, NOBODYS_BIT) {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => Err(io::Error::other("the futex had a value that it never has")),
        }
    }

    fn futex(&self, operation: i32, value: u32, bits: u32) -> io::Result<()> {
        let (word, null) = (self.word.as_ptr(), std::ptr::null::<libc::c_void>());
        let operation = operation | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word lives as long as the call; the kernel writes nothing.
        let result =
            unsafe { libc::syscall(libc::SYS_futex, word, operation, value, null, null, bits) };
        if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

fn membarrier(command: i32) -> io::Result<()> {
    // SAFETY: the call takes no pointers.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Creates a file and removes its name.
fn tempfile() -> io::Result<File> {
    let path = std::env::temp_dir().join(format!("holdbench-{}", std::process::id()));
    let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    let chunk = vec![1; SAMPLE_BYTES];
    (0..FILE_BYTES / SAMPLE_BYTES).try_for_each(|_| file.write_all(&chunk))?;
    Ok(file)
}

/// Returns how many bytes a read takes in `time`, by the fastest of some samples.
fn bytes_read_in(file: &mut File, time: Duration) -> io::Result<usize> {
    let mut buffer = vec![0; SAMPLE_BYTES];
    let mut fastest = Duration::MAX;
    for _ in 0..8 {
        file.seek(SeekFrom::Start(0))?;
        let started = Instant::now();
        file.read_exact(&mut buffer)?;
        fastest = fastest.min(started.elapsed());
    }
    let bytes = SAMPLE_BYTES as f64 * time.as_secs_f64() / fastest.as_secs_f64().max(1e-9);
    Ok((bytes as usize).clamp(1, FILE_BYTES))
}

fn work(time: Duration) {
    let started = Instant::now();
    while started.elapsed() < time {
        std::hint::spin_loop();
    }
}
