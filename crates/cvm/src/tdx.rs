//! The MRTD of TDX.
//!
//! The MRTD is a SHA-384 over the steps that build a trust domain's pages: "Intel TDX Module ABI
//! Specification" (348551). TDH.MEM.PAGE.ADD extends it by 128 bytes with the page's address.
//! TDH.MR.EXTEND extends it by 128 bytes with an address and then by 256 bytes of contents.

use sha2::{Digest, Sha384};

/// Bytes of a SHA-384 digest.
pub const DIGEST_BYTES: usize = 48;
/// Bytes that one TDH.MR.EXTEND measures.
const CHUNK_BYTES: usize = 256;
/// Bytes of the operation's name and address, which precede the contents.
const HEAD_BYTES: usize = 128;

/// An MRTD in progress.
#[derive(Debug, Clone, Default)]
pub struct Mrtd(Sha384);

impl Mrtd {
    /// Adds a page at a guest-physical address, without its contents.
    pub fn add(&mut self, gpa: u64) {
        self.0.update(head(b"MEM.PAGE.ADD", gpa));
    }

    /// Measures the 4096 bytes of a page that was added.
    pub fn extend(&mut self, gpa: u64, contents: &[u8]) {
        for (chunk, offset) in contents.chunks(CHUNK_BYTES).zip((0..).step_by(CHUNK_BYTES)) {
            self.0.update(head(b"MR.EXTEND", gpa + offset));
            self.0.update(chunk);
        }
    }

    /// Returns the MRTD of the pages so far.
    pub fn value(&self) -> [u8; DIGEST_BYTES] {
        self.0.clone().finalize().into()
    }
}

/// Returns the operation's name in bytes 0 to 15, the address in 16 to 23, and zeros.
fn head(operation: &[u8], gpa: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..operation.len()].copy_from_slice(operation);
    head[16..24].copy_from_slice(&gpa.to_le_bytes());
    head
}
