//! glibc's `pthread_spinlock_t`: an unfair spinlock.
//!
//! Source: POSIX.1-2017, `pthread_spin_lock`; the C library's code runs. A waiter cannot check the
//! stop flag, and need not: the lock is unfair, so it becomes free when its holder's vCPU is on
//! again, and no waiter blocks another.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicBool;

use super::RawLock;

/// A `pthread_spinlock_t` at an address of its own.
#[repr(align(128))]
struct Inner(UnsafeCell<libc::pthread_spinlock_t>);

/// glibc's process-private spinlock. It is boxed, because it must not move once it is initialised.
pub struct PthreadSpin(Box<Inner>);

// SAFETY: the C library's lock is made to be used from several threads at once.
unsafe impl Send for Inner {}
// SAFETY: as above; it is only accessed by the C library's own calls.
unsafe impl Sync for Inner {}

impl Default for PthreadSpin {
    fn default() -> Self {
        // SAFETY: all zeroes is a valid bit pattern of this plain C type; it is initialised below.
        let lock = Box::new(Inner(UnsafeCell::new(unsafe { MaybeUninit::zeroed().assume_init() })));
        // SAFETY: the pointer is valid, nothing else has it yet, and the box keeps its address.
        let error = unsafe { libc::pthread_spin_init(lock.0.get(), libc::PTHREAD_PROCESS_PRIVATE) };
        assert_eq!(error, 0, "pthread_spin_init failed: error {error}");
        Self(lock)
    }
}

impl Drop for PthreadSpin {
    fn drop(&mut self) {
        // SAFETY: it was initialised in `default`; no thread holds it when its last owner drops it.
        unsafe { libc::pthread_spin_destroy(self.0.0.get()) };
    }
}

impl RawLock for PthreadSpin {
    type Node = ();

    #[inline]
    unsafe fn lock(&self, (): &(), _stop: &AtomicBool) -> bool {
        // SAFETY: initialised in `default`, and not held by this thread (the trait's contract).
        unsafe { libc::pthread_spin_lock(self.0.0.get()) == 0 }
    }

    #[inline]
    unsafe fn unlock(&self, (): &()) {
        // SAFETY: initialised in `default`, and held by this thread (the trait's contract).
        unsafe { libc::pthread_spin_unlock(self.0.0.get()) };
    }
}
