//! The MRTD of TDX.
//!
//! A SHA-384 over the builds of a trust domain's pages: "Intel TDX Module ABI Specification"
//! (348551), TDH.MEM.PAGE.ADD, which extends it by 128 bytes with the page's address, and
//! TDH.MR.EXTEND, which extends it by 128 bytes with an address and then by 256 bytes of contents.

use sha2::{Digest, Sha384};

/// Bytes of a SHA-384 digest.
pub const DIGEST_BYTES: usize = 48;
/// Bytes that one TDH.MR.EXTEND measures.
const CHUNK_BYTES: usize = 256;
/// Bytes of the name and address before them.
const HEAD_BYTES: usize = 128;

/// An MRTD in the making.
#[derive(Debug, Clone, Default)]
pub struct Mrtd(Sha384);

impl Mrtd {
    /// Adds a page at a guest physical address, without its contents.
    pub fn add(&mut self, gpa: u64) {
        self.0.update(head(b"MEM.PAGE.ADD", gpa));
    }

    /// Measures the contents of a page, 4096 bytes, that was added.
    pub fn extend(&mut self, gpa: u64, contents: &[u8]) {
        for (chunk, offset) in contents.chunks(CHUNK_BYTES).zip((0..).step_by(CHUNK_BYTES)) {
            self.0.update(head(b"MR.EXTEND", gpa + offset));
            self.0.update(chunk);
        }
    }

    /// The MRTD of the pages so far.
    pub fn value(&self) -> [u8; DIGEST_BYTES] {
        self.0.clone().finalize().into()
    }
}

/// The name of the operation in bytes 0 to 15, the address in 16 to 23, zeros behind.
fn head(operation: &[u8], gpa: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..operation.len()].copy_from_slice(operation);
    head[16..24].copy_from_slice(&gpa.to_le_bytes());
    head
}
