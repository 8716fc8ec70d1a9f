//! What opens and closes pages for threads of devices.

use std::fmt::Debug;
use std::io;
use std::ops::Range;

use unspin_cvm::PAGE_BYTES;

/// Opens and closes pages, by their numbers in the [`super::table::Table`]. The table calls under
/// its lock.
pub trait Gate: Debug + Send + Sync {
    /// Lets threads of devices touch pages. After an error, nobody touches them.
    fn open(&self, pages: Range<u32>) -> io::Result<()>;

    /// Takes pages away. After it, no thread reaches them, on whichever processor it runs.
    fn close(&self, pages: Range<u32>) -> io::Result<()>;
}

/// Lets a stray access end the process as SIGSEGV or SIGBUS. Rust's handler, which looks for the
/// stack's overflow, makes a call first that filters of threads forbid: that would be SIGSYS.
pub fn die_of_faults() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the default action refers to nothing.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// A part of a mapping.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// The number of its first page.
    first: u32,
    pages: u32,
    /// Where it is mapped.
    host: usize,
}

/// mprotect on a mapping, which is inaccessible at first.
#[derive(Debug)]
pub struct Mprotect {
    parts: Vec<Part>,
}

impl Mprotect {
    /// A mapping's parts in the order of their pages' numbers: addresses and bytes.
    ///
    /// # Safety
    ///
    /// The parts are mapped as long as this gate exists, and only accesses that can bear a fault
    /// go there.
    pub unsafe fn new(parts: &[(*mut u8, u64)]) -> Mprotect {
        let mut first = 0;
        let parts = parts.iter().map(|(host, bytes)| {
            let pages = (bytes / PAGE_BYTES) as u32;
            let part = Part { first, pages, host: *host as usize };
            first += pages;
            part
        });
        Mprotect { parts: parts.collect() }
    }

    fn protect(&self, pages: Range<u32>, protection: libc::c_int) -> io::Result<()> {
        for part in &self.parts {
            let start = pages.start.max(part.first);
            let end = pages.end.min(part.first + part.pages);
            if start >= end {
                continue;
            }
            let at = part.host + (start - part.first) as usize * PAGE_BYTES as usize;
            let bytes = (end - start) as usize * PAGE_BYTES as usize;
            // SAFETY: the range is inside of a part, which `new` requires to be mapped.
            if unsafe { libc::mprotect(at as *mut libc::c_void, bytes, protection) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

impl Gate for Mprotect {
    fn open(&self, pages: Range<u32>) -> io::Result<()> {
        self.protect(pages, libc::PROT_READ | libc::PROT_WRITE)
    }

    fn close(&self, pages: Range<u32>) -> io::Result<()> {
        self.protect(pages, libc::PROT_NONE)
    }
}
