//! The terminal on standard input.

use std::io;
use std::os::fd::RawFd;

/// Ctrl-A begins a command: x ends the VM, and a second Ctrl-A goes to the guest.
const ESCAPE: u8 = 1;

/// A terminal in raw mode. Its old mode returns when this value is dropped.
#[derive(Debug)]
pub struct Raw {
    fd: RawFd,
    before: libc::termios,
}

impl Raw {
    /// Switches a terminal to raw mode. Returns `None` if `fd` is not a terminal.
    pub fn enter(fd: RawFd) -> io::Result<Option<Raw>> {
        // SAFETY: termios is plain data, for which zeros are valid.
        let mut mode: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: `mode` is a termios to fill.
        if unsafe { libc::tcgetattr(fd, &mut mode) } != 0 {
            return Ok(None);
        }
        let raw = Raw { fd, before: mode };
        // SAFETY: `mode` is a termios.
        unsafe { libc::cfmakeraw(&mut mode) };
        // Each message of this program still starts at the beginning of a line.
        mode.c_oflag |= libc::OPOST;
        // SAFETY: as above.
        if unsafe { libc::tcsetattr(fd, libc::TCSANOW, &mode) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Some(raw))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: `before` is the termios that the terminal had.
        unsafe { libc::tcsetattr(self.fd, libc::TCSANOW, &self.before) };
    }
}

/// The filter of typed input, which takes out the commands to this program.
#[derive(Debug, Default)]
pub struct Typed {
    escaped: bool,
}

impl Typed {
    /// Returns the bytes for the guest, or `None` if the user ends the VM.
    pub fn filter(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut kept = Vec::with_capacity(bytes.len());
        for byte in bytes {
            match (std::mem::take(&mut self.escaped), *byte) {
                (true, b'x') => return None,
                (false, ESCAPE) => self.escaped = true,
                (_, byte) => kept.push(byte),
            }
        }
        Some(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctrl_a_x_ends_the_vm_and_nothing_else_does() {
        let mut typed = Typed::default();
        assert_eq!(typed.filter(b"ax\x01"), Some(b"ax".to_vec()));
        assert_eq!(typed.filter(b"\x01b\x01b"), Some(b"\x01bb".to_vec()));
        assert_eq!(typed.filter(b"\x01"), Some(vec![]));
        assert_eq!(typed.filter(b"x"), None);
    }
}
