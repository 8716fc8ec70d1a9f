//! glibc's `pthread_mutex_t`: waiters sleep on a futex. Unfair.
//!
//! Source: POSIX.1-2017, `pthread_mutex_lock`; the C library's code runs. A waiter cannot check the
//! stop flag, and need not: each holder releases the mutex, so every waiter gets it in the end and
//! then sees the flag.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicBool;

use super::RawLock;

/// A `pthread_mutex_t` at an address of its own.
#[repr(align(128))]
struct Inner(UnsafeCell<libc::pthread_mutex_t>);

/// glibc's mutex with default attributes. It is boxed, because it must not move once it is
/// initialised.
pub struct PthreadMutex(Box<Inner>);

// SAFETY: the C library's lock is made to be used from several threads at once.
unsafe impl Send for Inner {}
// SAFETY: as above; it is only accessed by the C library's own calls.
unsafe impl Sync for Inner {}

impl Default for PthreadMutex {
    fn default() -> Self {
        // SAFETY: all zeroes is a valid bit pattern of this plain C type; it is initialised below.
        let lock = Box::new(Inner(UnsafeCell::new(unsafe { MaybeUninit::zeroed().assume_init() })));
        // SAFETY: the pointer is valid, nothing else has it yet, and the box keeps its address.
        let error = unsafe { libc::pthread_mutex_init(lock.0.get(), std::ptr::null()) };
        assert_eq!(error, 0, "pthread_mutex_init failed: error {error}");
        Self(lock)
    }
}

impl Drop for PthreadMutex {
    fn drop(&mut self) {
        // SAFETY: it was initialised in `default`; no thread holds it when its last owner drops it.
        unsafe { libc::pthread_mutex_destroy(self.0.0.get()) };
    }
}

impl RawLock for PthreadMutex {
    type Node = ();

    #[inline]
    unsafe fn lock(&self, (): &(), _stop: &AtomicBool) -> bool {
        // SAFETY: initialised in `default`, and not held by this thread (the trait's contract).
        unsafe { libc::pthread_mutex_lock(self.0.0.get()) == 0 }
    }

    #[inline]
    unsafe fn unlock(&self, (): &()) {
        // SAFETY: initialised in `default`, and held by this thread (the trait's contract).
        unsafe { libc::pthread_mutex_unlock(self.0.0.get()) };
    }
}
