//! The kernel services that the measurements need.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::FromRawFd;
use std::sync::atomic::AtomicU32;

/// Two CPUs that this process may use.
pub struct Cpus {
    /// The measuring thread's CPU.
    pub first: usize,
    /// The other thread's CPU, for measurements with two CPUs.
    pub second: usize,
}

impl Cpus {
    /// Returns the first two CPUs of the affinity mask, or `None` if it has only one.
    pub fn allowed() -> Option<Cpus> {
        // SAFETY: an all-zero set is an empty one, and the kernel writes at most its size.
        let set = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
            set
        };
        // SAFETY: the numbers are below the set's size.
        let mut cpus =
            (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) });
        Some(Cpus { first: cpus.next()?, second: cpus.next()? })
    }
}

/// Returns CLOCK_MONOTONIC in nanoseconds, which the vDSO reads.
pub fn now_ns() -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the call writes `time`, and cannot fail for this clock.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr());
        time.assume_init()
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Spins until a time.
pub fn spin_until(time_ns: u64) {
    while now_ns() < time_ns {
        std::hint::spin_loop();
    }
}

/// Pins this thread to a CPU.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    // SAFETY: an all-zero set is an empty one; `cpu` is below its size.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes sleeps end at their deadline instead of up to 50 us later. Threads inherit the setting.
pub fn no_timer_slack() -> io::Result<()> {
    // SAFETY: the call takes no pointers.
    let result = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns a pipe's reading and writing ends. The standard library has pipes since Rust 1.87.
pub fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both were just opened, and nothing else owns them.
    Ok(unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) })
}

/// Sleeps while the word has this value. Returns false if the word had another value.
pub fn futex_wait(word: &AtomicU32, value: u32) -> bool {
    futex(word, libc::FUTEX_WAIT, value) == 0
}

/// Wakes one sleeper. Returns false if no thread slept.
pub fn futex_wake(word: &AtomicU32) -> bool {
    futex(word, libc::FUTEX_WAKE, 1) == 1
}

fn futex(word: &AtomicU32, operation: i32, value: u32) -> libc::c_long {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    let no_timeout = std::ptr::null::<libc::timespec>();
    // SAFETY: the word outlives the call; the kernel writes nothing.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, no_timeout) }
}
