//! Early end: the program waits for SIGINT and SIGTERM instead of handling them.
//!
//! A blocked signal stays pending until it is fetched, even if a shell set it to ignored for its
//! background jobs. So no handler is needed, and no other thread is interrupted.

use std::mem::MaybeUninit;
use std::ptr;
use std::time::{Duration, Instant};

/// Blocks SIGINT and SIGTERM for this thread and the threads that it starts.
pub fn block() {
    let set = stop_set();
    // SAFETY: `set` is initialised; a null pointer means that the old mask is not wanted.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut()) };
}

/// Sleeps until SIGINT or SIGTERM arrives or the limit is over; without a limit, until a signal
/// arrives. Returns whether it was a signal.
pub fn wait(limit: Option<Duration>) -> bool {
    let set = stop_set();
    let end = limit.map(|limit| Instant::now() + limit);
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        match wait_once(&set, left) {
            Some(signalled) => return signalled,
            // Another signal interrupted the wait, such as SIGCONT.
            None => continue,
        }
    }
}

fn wait_once(set: &libc::sigset_t, left: Option<Duration>) -> Option<bool> {
    let timeout = left.map(|left| libc::timespec {
        tv_sec: left.as_secs() as libc::time_t,
        tv_nsec: left.subsec_nanos() as libc::c_long,
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `set` is initialised, `timeout` is null (no limit) or points to a live timespec,
    // and a null pointer means that the details are not wanted.
    let signal = unsafe { libc::sigtimedwait(set, ptr::null_mut(), timeout) };
    match signal {
        signal if signal > 0 => Some(true),
        _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => None,
        _ => Some(false),
    }
}

fn stop_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set; the calls after it work on the initialised set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        set.assume_init()
    }
}
