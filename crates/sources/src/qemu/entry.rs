//! QEMUs in the cache.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Qemu;
use crate::cache::{Cached, cache_dir};

/// A QEMU in the cache and its ingredients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// The built QEMU.
    #[serde(flatten)]
    pub qemu: Qemu,
    /// Names of the patches, in the order in which they were applied.
    pub patches: Vec<String>,
    /// Headers of `policy/`, by their paths below it.
    pub headers: Vec<String>,
    /// Arguments of `configure`.
    pub options: Vec<String>,
    /// First line of the compiler's `--version`.
    pub compiler: String,
    /// Digest of patches, headers, devices and options.
    pub recipe: String,
}

impl Cached for Build {
    const METADATA: &'static str = "qemu.json";

    fn id(&self) -> &str {
        &self.qemu.id
    }

    fn locate(&mut self, folder: &Path) {
        self.qemu.program = folder.join(&self.qemu.program);
        self.qemu.firmware = folder.join(&self.qemu.firmware);
    }
}

/// Returns the folder of the cached QEMUs.
pub(super) fn qemu_dir() -> PathBuf {
    cache_dir().join("qemu")
}
