//! The gate, which opens and closes pages for the devices' threads.

use std::fmt::Debug;
use std::io;
use std::ops::Range;

use unspin_cvm::PAGE_BYTES;

/// Opens and closes pages, which it names by their numbers in the [`super::table::Table`]. The
/// table calls it with its lock held.
pub trait Gate: Debug + Send + Sync {
    /// Lets the devices' threads touch pages. After an error, no thread touches them.
    fn open(&self, pages: Range<u32>) -> io::Result<()>;

    /// Takes pages away. Once it returns, no thread on any processor can reach them.
    fn close(&self, pages: Range<u32>) -> io::Result<()>;
}

/// Restores the default action of SIGSEGV and SIGBUS, so that a stray access ends the process with
/// that signal. Rust's own handler, which detects stack overflows, first makes a system call that
/// the threads' filters forbid: the process would die of SIGSYS instead.
pub fn die_of_faults() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the default action refers to no memory.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// A part of a mapping.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// The number of its first page.
    first: u32,
    pages: u32,
    /// The host address of the mapping.
    host: usize,
}

/// A gate that calls mprotect on a mapping, which is inaccessible at first.
#[derive(Debug)]
pub struct Mprotect {
    parts: Vec<Part>,
}

impl Mprotect {
    /// Returns a gate for a mapping's parts, each an address and a number of bytes, in the order of
    /// their pages' numbers.
    ///
    /// # Safety
    ///
    /// The parts must stay mapped as long as this gate exists. Only accesses that can survive a
    /// fault may go there.
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
            // SAFETY: the range lies within a part, which `new` requires to be mapped.
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
