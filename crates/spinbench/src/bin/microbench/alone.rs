//! Costs of one thread.

use std::hint::black_box;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::os::now_ns;
use crate::sample::Samples;

const PAGE_BYTES: usize = 4096;
/// Number of pages to touch. They are half of a page table's, so few faults build a table.
const PAGES: usize = 256;

/// Measures a system call that does nothing. No C library caches the result of this direct call.
pub fn getpid() -> io::Result<Samples> {
    Samples::of_batches(200, 100, || {
        // SAFETY: it takes no arguments.
        black_box(unsafe { libc::syscall(libc::SYS_getpid) });
        Ok(())
    })
}

/// Measures the first write to a page of anonymous memory.
pub fn page_fault() -> io::Result<Samples> {
    Samples::take(40, || {
        let pages = Pages::new()?;
        let start = now_ns();
        (0..PAGES).for_each(|page| pages.touch(page));
        Ok((now_ns() - start) as f64 / PAGES as f64)
    })
}

/// Measures lock and unlock of an uncontended spinlock: one LOCK CMPXCHG and one store.
pub fn lock() -> io::Result<Samples> {
    let word = AtomicU32::new(0);
    Samples::of_batches(200, 1000, || {
        let word = black_box(&word);
        while word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {}
        word.store(0, Ordering::Release);
        Ok(())
    })
}

/// Anonymous memory in small pages, unmapped when this value is dropped.
struct Pages(*mut u8);

impl Pages {
    fn new() -> io::Result<Pages> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses a free address.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), PAGES * PAGE_BYTES, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A kernel without huge pages refuses the advice and needs none.
        // SAFETY: the range is the one just mapped.
        unsafe { libc::madvise(start, PAGES * PAGE_BYTES, libc::MADV_NOHUGEPAGE) };
        Ok(Pages(start.cast()))
    }

    fn touch(&self, page: usize) {
        assert!(page < PAGES);
        // SAFETY: the page is mapped, writable, and this thread's alone.
        unsafe { self.0.add(page * PAGE_BYTES).write_volatile(1) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range belongs to this object, and no reference to it is left.
        unsafe { libc::munmap(self.0.cast(), PAGES * PAGE_BYTES) };
    }
}
