//! Unpacks, overlays and patches QEMU's source tree.

use std::fs;
use std::path::Path;

use super::fetch::Fetched;
use super::inputs::{DEBIAN, ORIG};
use super::recipe::{DEBIAN_PATCHES, Recipe};
use crate::command::Runner;
use crate::{SourcesError, deb, overlay, patch};

/// The file with the devices of the only target that the lab builds.
const DEVICES: &str = "configs/devices/i386-softmmu/default.mak";

/// Makes the tree `into`. The lab's patches apply last, so they can change devices and headers.
pub(super) fn prepare(
    fetched: &Fetched,
    recipe: &Recipe,
    into: &Path,
    runner: &Runner,
) -> Result<(), SourcesError> {
    deb::unpack_source(&fetched.folder.join(ORIG), into, 1, runner)?;
    deb::unpack_source(&fetched.folder.join(DEBIAN), into, 0, runner)?;
    for name in DEBIAN_PATCHES {
        let path = into.join("debian/patches").join(name);
        let text = fs::read_to_string(&path).map_err(|e| SourcesError::io("read", &path, e))?;
        patch::apply(into, name, &text, runner)?;
    }
    overlay::write(&into.join(DEVICES), recipe.devices)?;
    overlay::headers(into, &recipe.headers)?;
    recipe.patches.iter().try_for_each(|(name, text)| patch::apply(into, name, text, runner))
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
