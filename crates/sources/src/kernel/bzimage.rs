//! The header of a bzImage.
//!
//! Source: the kernel's Documentation/arch/x86/boot.rst.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::KernelError;
use crate::SourcesError;

/// Offset of the magic `HdrS`.
const MAGIC_AT: usize = 0x202;
/// Offset of the pointer to the version string (protocol 2.00 and later). The pointer counts from
/// 0x200.
const VERSION_AT: usize = 0x20e;
/// Bytes that include the version string: the boot sector and at most 64 sectors of setup code.
const SETUP_MAX: u64 = 65 * 512;

/// Returns the release (`uname -r`) of the bzImage at `path`.
///
/// # Errors
/// If the file cannot be read or is not a bzImage.
pub(super) fn release(path: &Path) -> Result<String, KernelError> {
    let read = |error| SourcesError::io("read", path, error);
    let mut head = Vec::new();
    File::open(path).map_err(read)?.take(SETUP_MAX).read_to_end(&mut head).map_err(read)?;
    parse_release(&head).map_err(|why| KernelError::NotBzImage { path: path.into(), why })
}

/// Returns the first word of the version string, such as `6.12.117-unspin (user@host) #1 SMP ...`.
fn parse_release(head: &[u8]) -> Result<String, &'static str> {
    if head.get(MAGIC_AT..MAGIC_AT + 4) != Some(b"HdrS") {
        return Err("it has no boot header");
    }
    let pointer = head.get(VERSION_AT..VERSION_AT + 2).ok_or("its header is cut short")?;
    let at = usize::from(u16::from_le_bytes([pointer[0], pointer[1]])) + 0x200;
    let text = head.get(at..).filter(|_| at > 0x200).ok_or("it has no version string")?;
    let word = text.split(|byte| matches!(byte, 0 | b' ')).next().unwrap_or_default();
    match std::str::from_utf8(word) {
        Ok(word) if !word.is_empty() => Ok(word.into()),
        _ => Err("its version string is not text"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a header as the kernel's build writes it, with the version string at 0x200 +
    /// `pointer`.
    fn header(pointer: u16, version: &[u8]) -> Vec<u8> {
        let mut head = vec![0; 0x4000];
        head[MAGIC_AT..MAGIC_AT + 4].copy_from_slice(b"HdrS");
        head[VERSION_AT..VERSION_AT + 2].copy_from_slice(&pointer.to_le_bytes());
        let at = usize::from(pointer) + 0x200;
        head[at..at + version.len()].copy_from_slice(version);
        head
    }

    #[test]
    fn the_release_is_the_first_word() {
        let head = header(0x3180, b"6.12.117-unspin (unspin@lab) #1 SMP PREEMPT_VOLUNTARY\0");
        assert_eq!(parse_release(&head), Ok("6.12.117-unspin".into()));
    }

    #[test]
    fn other_files_are_refused() {
        assert!(parse_release(b"\x7fELF").is_err());
        assert!(parse_release(&vec![0; 0x4000]).is_err());
        assert!(parse_release(&header(0, b"")).is_err());
        assert!(parse_release(&header(0x3000, b"\0")).is_err());
        assert!(parse_release(&header(0x3180, b"6.12 x")[..0x3000]).is_err());
    }
}
