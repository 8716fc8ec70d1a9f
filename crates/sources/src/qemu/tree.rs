//! The source tree: unpacked, overlaid and patched.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::fetch::Fetched;
use super::inputs::{DEBIAN, ORIG};
use super::recipe::{DEBIAN_PATCHES, Recipe};
use crate::command::Runner;
use crate::{SourcesError, overlay, patch};

/// The devices of the only target that is built.
const DEVICES: &str = "configs/devices/i386-softmmu/default.mak";

/// Makes the tree `into`. The lab's patches apply last, so they see devices and headers.
pub(super) fn prepare(
    fetched: &Fetched,
    recipe: &Recipe,
    into: &Path,
    runner: &Runner,
) -> Result<(), SourcesError> {
    fs::create_dir_all(into).map_err(|e| SourcesError::io("create", into, e))?;
    unpack(&fetched.folder.join(ORIG), into, 1, runner)?;
    unpack(&fetched.folder.join(DEBIAN), into, 0, runner)?;
    for name in DEBIAN_PATCHES {
        let path = into.join("debian/patches").join(name);
        let text = fs::read_to_string(&path).map_err(|e| SourcesError::io("read", &path, e))?;
        patch::apply(into, name, &text, runner)?;
    }
    overlay::write(&into.join(DEVICES), recipe.devices)?;
    overlay::headers(into, &recipe.headers)?;
    recipe.patches.iter().try_for_each(|(name, text)| patch::apply(into, name, text, runner))
}

fn unpack(tarball: &Path, into: &Path, strip: u32, runner: &Runner) -> Result<(), SourcesError> {
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--xz", "--no-same-owner"]).arg(format!("--strip-components={strip}"));
    tar.arg("--file").arg(tarball).arg("--directory").arg(into);
    runner.run("unpacking the source", &mut tar, &mut |_| ())
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
