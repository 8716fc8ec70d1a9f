//! The launch digest of SEV-SNP.
//!
//! The firmware extends it by each page that the hypervisor adds: "SEV Secure Nested Paging
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
    /// Contents are measured.
    Normal = 1,
    /// Initial state of a vCPU; its contents are measured.
    Vmsa = 2,
    /// Zeros; the firmware hashes no contents.
    Zero = 3,
    /// The address is measured, the contents are not.
    Unmeasured = 4,
    /// The firmware fills in secrets.
    Secrets = 5,
    /// The hypervisor's CPUID values, which the firmware checks.
    Cpuid = 6,
}

/// A digest in the making.
#[derive(Debug, Clone)]
pub struct LaunchDigest([u8; DIGEST_BYTES]);

impl Default for LaunchDigest {
    fn default() -> LaunchDigest {
        LaunchDigest([0; DIGEST_BYTES])
    }
}

impl LaunchDigest {
    /// Adds a page of 4096 bytes at a guest physical address. Of the types without measured
    /// contents, `contents` is ignored.
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
        // No page of an initial migration image, and no permissions for VMPL 3, 2 and 1.
        info.update([0; 5]);
        info.update(gpa.to_le_bytes());
        self.0 = info.finalize().into();
    }

    /// The digest of the pages so far.
    pub fn value(&self) -> [u8; DIGEST_BYTES] {
        self.0
    }
}
