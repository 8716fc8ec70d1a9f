//! Digests that name the entries of the cache.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::SourcesError;

/// Returns the SHA-256 of a file, in hexadecimal digits.
pub(super) fn of_file(path: &Path) -> Result<String, SourcesError> {
    let read = |error| SourcesError::io("read", path, error);
    let mut file = File::open(path).map_err(read)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(read)? {
            0 => return Ok(Digest(digest).hex(32)),
            length => digest.update(&buffer[..length]),
        }
    }
}

/// A digest over a list of texts. It depends on the boundaries between the texts.
pub(super) struct Digest(Sha256);

impl Digest {
    pub(super) fn new() -> Self {
        Self(Sha256::new())
    }

    pub(super) fn add(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
    }

    /// Returns eight hexadecimal digits, which distinguish the entries of one cache.
    pub(super) fn short(self) -> String {
        self.hex(4)
    }

    /// Returns 32 hexadecimal digits, which distinguish results from any two machines.
    pub(super) fn long(self) -> String {
        self.hex(16)
    }

    fn hex(self, bytes: usize) -> String {
        self.0.finalize().iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Returns the part of an id that identifies all ingredients of an entry.
pub(super) fn build_key(source: &str, recipe: &str, compiler: &str) -> String {
    let mut digest = Digest::new();
    for text in [source, recipe, compiler] {
        digest.add(text);
    }
    digest.short()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ingredient_changes_the_key() {
        let key = build_key("linux-source-6.12 6.12.117-1", "r", "gcc 12");
        assert_eq!(key.len(), 8);
        assert_eq!(key, build_key("linux-source-6.12 6.12.117-1", "r", "gcc 12"));
        assert_ne!(key, build_key("linux-source-6.12 6.12.118-1", "r", "gcc 12"));
        assert_ne!(key, build_key("linux-source-6.12 6.12.117-1", "s", "gcc 12"));
        assert_ne!(key, build_key("linux-source-6.12 6.12.117-1", "r", "gcc 14"));
    }

    #[test]
    fn a_files_digest_is_its_sha256() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "abc").unwrap();
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of_file(&path).unwrap(), expected);
    }

    #[test]
    fn where_a_text_ends_matters() {
        assert_ne!(build_key("ab", "c", ""), build_key("a", "bc", ""));
    }
}
