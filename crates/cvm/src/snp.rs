//! The launch digest of SEV-SNP.
//!
//! The firmware extends the digest by each page that the hypervisor adds: "SEV Secure Nested Paging
//! Firmware ABI Specification" (AMD, 56860, revision 1.55), section 8.17, SNP_LAUNCH_UPDATE, and
//! its table of the PAGE_INFO structure. The digest starts as zeros.

use sha2::{Digest, Sha384};

/// Bytes of a SHA-384 digest.
pub const DIGEST_BYTES: usize = 48;
/// Bytes of a PAGE_INFO structure.
const PAGE_INFO_BYTES: u16 = 0x70;

/// The type of a page, with the number that the firmware hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PageType {
    /// A page whose contents are measured.
    Normal = 1,
    /// The initial state of a vCPU, whose contents are measured.
    Vmsa = 2,
    /// A page of zeros, whose contents the firmware does not hash.
    Zero = 3,
    /// A page whose address is measured, but not its contents.
    Unmeasured = 4,
    /// A page that the firmware fills with secrets.
    Secrets = 5,
    /// The hypervisor's CPUID values, which the firmware checks.
    Cpuid = 6,
}

/// A digest in progress.
#[derive(Debug, Clone)]
pub struct LaunchDigest([u8; DIGEST_BYTES]);

impl Default for LaunchDigest {
    fn default() -> LaunchDigest {
        LaunchDigest([0; DIGEST_BYTES])
    }
}

impl LaunchDigest {
    /// Adds a page of 4096 bytes at a guest-physical address. Ignores `contents` for types without
    /// measured contents.
    pub fn add(&mut self, kind: PageType, gpa: u64, contents: &[u8]) {
        let hashed = match kind {
            PageType::Normal | PageType::Vmsa => Sha384::digest(contents).into(),
            _ => [0; DIGEST_BYTES],
        };
        let mut info = Sha384::new();
        info.update(self.0);
        info.update(hashed);
        info.update(PAGE_INFO_BYTES.to_le_bytes());
        info.update([kind as u8]);
        // The page is not part of a migration image, and gives no permissions to VMPL 3, 2 and 1.
        info.update([0; 5]);
        info.update(gpa.to_le_bytes());
        self.0 = info.finalize().into();
    }

    /// Returns the digest of the pages so far.
    pub fn value(&self) -> [u8; DIGEST_BYTES] {
        self.0
    }
}
