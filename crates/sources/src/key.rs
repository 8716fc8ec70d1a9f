//! Digests that name what is cached.

use sha2::{Digest as _, Sha256};

/// A digest over a list of texts; where one text ends matters.
pub(super) struct Digest(Sha256);

impl Digest {
    pub(super) fn new() -> Self {
        Self(Sha256::new())
    }

    pub(super) fn add(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
    }

    /// Eight hexadecimal digits: enough to tell the kernels of one cache apart.
    pub(super) fn short(self) -> String {
        self.0.finalize().iter().take(4).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The part of a lab kernel's id that stands for what it was made of.
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
    fn where_a_text_ends_matters() {
        assert_ne!(build_key("ab", "c", ""), build_key("a", "bc", ""));
    }
}
