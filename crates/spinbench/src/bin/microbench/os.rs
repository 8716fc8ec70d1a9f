//! What the measurements ask of the kernel.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::FromRawFd;
use std::sync::atomic::AtomicU32;

/// Two CPUs that this process may use.
pub struct Cpus {
    /// The measuring thread's.
    pub first: usize,
    /// The other thread's, where two CPUs take part.
    pub second: usize,
}

impl Cpus {
    /// The first two of the affinity mask; none where there is one only.
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

/// CLOCK_MONOTONIC, which the vDSO reads.
pub fn now_ns() -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the call writes `time`, and cannot fail for this clock.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr());
        time.assume_init()
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Computes until a time.
pub fn spin_until(time_ns: u64) {
    while now_ns() < time_ns {
        std::hint::spin_loop();
    }
}

/// Binds this thread to a CPU.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    // SAFETY: an all-zero set is an empty one; `cpu` is below its size.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sleeps end at their deadline, not up to 50 us later. Threads inherit it.
pub fn no_timer_slack() -> io::Result<()> {
    // SAFETY: it takes no pointers.
    let result = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A pipe: its reading and its writing end. The standard library has one since Rust 1.87.
pub fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both were just opened, and nobody else owns them.
    Ok(unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) })
}

/// Sleeps while the word has this value; false if it had another one.
pub fn futex_wait(word: &AtomicU32, value: u32) -> bool {
    futex(word, libc::FUTEX_WAIT, value) == 0
}

/// Wakes one sleeper; false if nobody slept.
pub fn futex_wake(word: &AtomicU32) -> bool {
    futex(word, libc::FUTEX_WAKE, 1) == 1
}

fn futex(word: &AtomicU32, operation: i32, value: u32) -> libc::c_long {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    let no_timeout = std::ptr::null::<libc::timespec>();
    // SAFETY: the word outlives the call; the kernel writes nothing.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, no_timeout) }
}
