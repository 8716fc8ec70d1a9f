//! A protection key (pkeys(7)) for a mapping that few threads may use.
//!
//! Each thread says in its register PKRU which keys it may use. A denied access is a SIGSEGV, and
//! EFAULT in a system call. mprotect leaves the key of a mapping as it is.

use std::arch::asm;
use std::io;

/// A key that the calling thread, and the threads that it starts, may use until they [`Key::deny`]
/// it to themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(u32);

impl Key {
    /// A key of this process; `None` if processor or kernel have no protection keys, or none is
    /// left.
    pub fn allocate() -> Option<Key> {
        // SAFETY: the arguments are numbers: no flags, no restriction.
        let key = unsafe { libc::syscall(libc::SYS_pkey_alloc, 0, 0) };
        u32::try_from(key).ok().map(Key)
    }

    /// Gives the key to a mapping that can be read and written.
    ///
    /// # Safety
    ///
    /// No thread that denies itself the key has references into the mapping.
    pub unsafe fn assign(self, at: *mut u8, bytes: usize) -> io::Result<()> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the protection stays as it is; the caller vouches for the rest.
        let done = unsafe { libc::syscall(libc::SYS_pkey_mprotect, at, bytes, protection, self.0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Denies the calling thread all access to the key's mappings.
    pub fn deny(self) {
        self.change(|rights, own| rights | own);
    }

    /// Allows the calling thread to read and write the key's mappings.
    pub fn allow(self) {
        self.change(|rights, own| rights & !own);
    }

    /// Changes the thread's denials, of which `own` are the key's.
    fn change(self, to: impl Fn(u32, u32) -> u32) {
        let rights: u32;
        // SAFETY: there is a key, so the kernel has enabled both instructions. They touch no
        // memory; no access moves over them, because `asm!` is not `nomem`.
        unsafe {
            asm!("rdpkru", in("ecx") 0, out("eax") rights, out("edx") _);
            let changed = to(rights, 0b11 << (2 * self.0));
            asm!("wrpkru", in("ecx") 0, in("edx") 0, in("eax") changed);
        }
    }
}
