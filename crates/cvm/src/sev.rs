//! The launch digest of SEV and SEV-ES.
//!
//! The digest is a SHA-256 of the data that the firmware encrypts, in that order and without
//! addresses: "Secure Encrypted Virtualization API" (AMD, 55766), LAUNCH_UPDATE_DATA and
//! LAUNCH_UPDATE_VMSA. LAUNCH_MEASURE then makes an HMAC of the digest, the policy, a nonce and the
//! firmware's version. No file can know the nonce or that version.

use sha2::{Digest, Sha256};

/// Bytes of a SHA-256 digest.
pub const DIGEST_BYTES: usize = 32;

/// A digest in progress.
#[derive(Debug, Clone, Default)]
pub struct LaunchDigest(Sha256);

impl LaunchDigest {
    /// Adds contents of memory, or the save area of a vCPU.
    pub fn add(&mut self, contents: &[u8]) {
        self.0.update(contents);
    }

    /// Returns the digest of all data so far.
    pub fn value(&self) -> [u8; DIGEST_BYTES] {
        self.0.clone().finalize().into()
    }
}
