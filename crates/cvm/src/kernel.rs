//! The parts of a Linux bzImage that a loader needs.
//!
//! Offsets are those of the setup header in Documentation/arch/x86/boot.rst.

/// The first version of the boot protocol with `xloadflags`: 2.12, Linux 3.8.
const VERSION_MIN: u16 = 0x20c;
const SECTOR_BYTES: usize = 512;
/// Offset of the 64-bit entry from the start of the protected-mode code.
pub const ENTRY_64: u64 = 0x200;
/// Bit of `xloadflags`: the kernel has a 64-bit entry.
pub const XLF_KERNEL_64: u16 = 1;

/// Offset of the setup header, in the image as in boot_params.
pub const SETUP_HEADER: usize = 0x1f1;
const SETUP_SECTS: usize = 0x1f1;
const SYSSIZE: usize = 0x1f4;
const BOOT_FLAG: usize = 0x1fe;
const JUMP_LENGTH: usize = 0x201;
/// Offset of the magic number "HdrS".
pub const MAGIC: usize = 0x202;
const VERSION: usize = 0x206;
const INITRD_ADDR_MAX: usize = 0x22c;
/// Offset of `xloadflags`, which describe 64-bit mode.
pub const XLOADFLAGS: usize = 0x236;
/// Offset of the length of the longest command line, without its NUL.
pub const CMDLINE_SIZE: usize = 0x238;
const PREF_ADDRESS: usize = 0x258;
/// Offset of the number of bytes that the kernel uses before it knows the memory map.
pub const INIT_SIZE: usize = 0x260;
/// An upper limit for the end of the setup header.
const SETUP_HEADER_END_MAX: usize = 0x290;

/// A reason why a file is not a kernel that can be started.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KernelError {
    /// The file is of another kind.
    #[error("is not a bzImage: name the vmlinuz of a Linux x86-64 kernel")]
    NotBzImage,
    /// The kernel is older than Linux 3.8.
    #[error("has boot protocol {:#x}, and the 64-bit entry needs 0x20c (Linux 3.8)", .0)]
    Old(u16),
    /// The kernel is a 32-bit one.
    #[error("has no 64-bit entry (XLF_KERNEL_64 is not set): it is a 32-bit kernel")]
    Not64Bit,
    /// The file is truncated.
    #[error("has {bytes} bytes of the {stated} that its header states: it is cut off")]
    Truncated {
        /// Bytes of the file.
        bytes: usize,
        /// The number of bytes that the header states.
        stated: usize,
    },
}

/// A kernel image.
#[derive(Debug, Clone, Copy)]
pub struct Kernel<'a> {
    /// The setup header, from [`SETUP_HEADER`] to its end.
    pub setup_header: &'a [u8],
    /// The part that the loader puts into memory.
    pub code: &'a [u8],
    /// The kernel's preferred address.
    pub address: u64,
    /// Bytes from that address on that the kernel uses before it knows the memory map.
    pub init_bytes: u64,
    /// The last address that the initramfs may use.
    pub initramfs_max: u64,
    /// The longest command line, without its NUL.
    pub command_line_max: u64,
}

impl Kernel<'_> {
    /// Reads the headers of an image.
    pub fn read(image: &[u8]) -> Result<Kernel<'_>, KernelError> {
        let is_bz = image.get(MAGIC..MAGIC + 4) == Some(b"HdrS")
            && image.get(BOOT_FLAG..BOOT_FLAG + 2) == Some(&[0x55, 0xaa]);
        if !is_bz || image.len() < SETUP_HEADER_END_MAX {
            return Err(KernelError::NotBzImage);
        }
        let version = u16_at(image, VERSION);
        if version < VERSION_MIN {
            return Err(KernelError::Old(version));
        }
        if u16_at(image, XLOADFLAGS) & XLF_KERNEL_64 == 0 {
            return Err(KernelError::Not64Bit);
        }
        let sectors = match image[SETUP_SECTS] {
            0 => 4,
            sectors => usize::from(sectors),
        };
        let start = (sectors + 1) * SECTOR_BYTES;
        let end = start + u32_at(image, SYSSIZE) as usize * 16;
        let code = image.get(start..end).filter(|code| !code.is_empty());
        let code = code.ok_or(KernelError::Truncated { bytes: image.len(), stated: end })?;
        let header_end = MAGIC + usize::from(image[JUMP_LENGTH]);
        Ok(Kernel {
            setup_header: &image[SETUP_HEADER..header_end.min(SETUP_HEADER_END_MAX)],
            code,
            address: u64_at(image, PREF_ADDRESS),
            init_bytes: u64::from(u32_at(image, INIT_SIZE)),
            initramfs_max: u64::from(u32_at(image, INITRD_ADDR_MAX)),
            command_line_max: u64::from(u32_at(image, CMDLINE_SIZE)),
        })
    }
}

/// Reads a field. Panics if the bytes do not exist.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
#[path = "../tests/it/common/kernel.rs"]
mod sample;

#[cfg(test)]
mod tests {
    use super::sample::synthetic;
    use super::*;

    #[test]
    fn an_image_is_read() {
        let image = synthetic();
        let kernel = Kernel::read(&image).unwrap();
        assert_eq!(kernel.setup_header.len(), 0x202 + 0x6a - 0x1f1);
        assert_eq!((kernel.address, kernel.init_bytes), (0x100_0000, 0x40_0000));
        assert_eq!((kernel.code.len(), kernel.code[1]), (12_400, 1));
        assert_eq!(kernel.command_line_max, 2047);
    }

    #[test]
    fn what_cannot_be_started_is_refused_with_the_reason() {
        let broken = |at: usize, value: u8| {
            let mut image = synthetic();
            image[at] = value;
            Kernel::read(&image).unwrap_err()
        };
        assert_eq!(broken(MAGIC, b'h'), KernelError::NotBzImage);
        assert_eq!(broken(VERSION, 1), KernelError::Old(0x201));
        assert_eq!(broken(XLOADFLAGS, 2), KernelError::Not64Bit);
        assert!(matches!(broken(SYSSIZE + 1, 99), KernelError::Truncated { .. }));
        let image = synthetic();
        for bytes in 0..image.len() {
            let _ = Kernel::read(&image[..bytes]);
        }
        assert_eq!(Kernel::read(b"\x7fELF").unwrap_err(), KernelError::NotBzImage);
    }
}
