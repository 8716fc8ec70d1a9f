//! A protection key (pkeys(7)) for a mapping that few threads may use.
//!
//! Each thread's register PKRU says which keys the thread may use. A denied access raises SIGSEGV;
//! in a system call, it fails with EFAULT. mprotect leaves the key of a mapping as it is.

use std::arch::asm;
use std::io;

/// A key that the calling thread and the threads that it starts may use until they call
/// [`Key::deny`] for themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(u32);

impl Key {
    /// Allocates a key for this process. Returns `None` if the processor or the kernel has no
    /// protection keys, or if none is left.
    pub fn allocate() -> Option<Key> {
        // SAFETY: the arguments are numbers: no flags, no restriction.
        let key = unsafe { libc::syscall(libc::SYS_pkey_alloc, 0, 0) };
        u32::try_from(key).ok().map(Key)
    }

    /// Assigns the key to a mapping that can be read and written.
    ///
    /// # Safety
    ///
    /// No thread that denies itself the key may have references into the mapping.
    pub unsafe fn assign(self, at: *mut u8, bytes: usize) -> io::Result<()> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the protection stays as it is; the caller guarantees the rest.
        let done = unsafe { libc::syscall(libc::SYS_pkey_mprotect, at, bytes, protection, self.0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Denies the calling thread all access to mappings with this key.
    pub fn deny(self) {
        self.change(|rights, own| rights | own);
    }

    /// Allows the calling thread to read and write mappings with this key.
    pub fn allow(self) {
        self.change(|rights, own| rights & !own);
    }

    /// Changes PKRU of the calling thread. `own` are the bits of this key.
    fn change(self, to: impl Fn(u32, u32) -> u32) {
        let rights: u32;
        // SAFETY: this process has a key, so the kernel has enabled both instructions. They touch
        // no memory. The compiler moves no access across them, because `asm!` is not `nomem`.
        unsafe {
            asm!("rdpkru", in("ecx") 0, out("eax") rights, out("edx") _);
            let changed = to(rights, 0b11 << (2 * self.0));
            asm!("wrpkru", in("ecx") 0, in("edx") 0, in("eax") changed);
        }
    }
}
