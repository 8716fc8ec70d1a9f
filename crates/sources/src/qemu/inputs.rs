//! The fetched files for a QEMU, with their digests.

use std::collections::BTreeMap;
use std::path::Path;

use super::QemuError;
use crate::SourcesError;
use crate::key::{Digest, of_file};

/// The pinned version of Debian's source package `qemu`, of trixie.
pub const VERSION: &str = "1:10.0.13+ds-0+deb13u1";
/// The pinned version of the package `seabios`.
pub(super) const SEABIOS: &str = "1.16.3-2";

/// The tarball of QEMU's authors, without the files that Debian may not ship.
pub(super) const ORIG: &str = "orig.tar.xz";
/// Debian's patches.
pub(super) const DEBIAN: &str = "debian.tar.xz";
/// The firmware of a q35 guest that boots with `-kernel`: each file's package and its path there.
pub(super) const FIRMWARE: &[(&str, &str)] = &[
    ("seabios", "usr/share/seabios/bios-256k.bin"),
    ("qemu-system-data", "usr/share/qemu/kvmvapic.bin"),
    ("qemu-system-data", "usr/share/qemu/linuxboot_dma.bin"),
    ("qemu-system-data", "usr/share/qemu/pvh.bin"),
];

/// Returns the names under which a guest's QEMU looks for the firmware files.
pub fn firmware_names() -> impl Iterator<Item = &'static str> {
    FIRMWARE.iter().map(|(_, path)| file_name(path))
}

/// The SHA-256 of each file in the pinned versions.
const PINS: &[(&str, &str)] = &[
    (ORIG, "6a0888e806c2ffc0c5f0733e974f9aea55491950d3c47c98669c8b236dde59ae"),
    (DEBIAN, "da73c092f5684c551b0334d675eb16a3dec91e1edea94759cfb1102fa4a0364e"),
    ("bios-256k.bin", "fc6d2ea888862e6b26d53fb877ab712324726eb8f44eb6baf076c64a31f1c3fb"),
    ("kvmvapic.bin", "8bbe341af0ab06c3008d65b29fb961f21f63a1419297dd4db80632261046cd98"),
    ("linuxboot_dma.bin", "08e33c5b398f5115bcce1312a7144f6b52cd140a4300de9b9a115d243f195983"),
    ("pvh.bin", "1703b779814fc0c701dd648032e10dc758767a8dd85b37a7c52b7349f5e52f81"),
];

/// A source version, and the SHA-256 of each file by its name in the fetched folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inputs {
    pub(super) version: String,
    pub(super) files: BTreeMap<String, String>,
}

impl Inputs {
    /// Returns the inputs of the pinned version.
    pub(super) fn pinned() -> Self {
        let files = PINS.iter().map(|(name, digest)| (name.to_string(), digest.to_string()));
        Self { version: VERSION.into(), files: files.collect() }
    }

    /// Returns the inputs that `folder` contains.
    pub(super) fn of_folder(version: &str, folder: &Path) -> Result<Self, SourcesError> {
        let digest = |name: &str| Ok((name.to_owned(), of_file(&folder.join(name))?));
        let files = PINS.iter().map(|(name, _)| digest(name)).collect::<Result<_, _>>()?;
        Ok(Self { version: version.into(), files })
    }

    /// Checks the digests against `expected`.
    pub(super) fn check(&self, expected: &Self) -> Result<(), QemuError> {
        let differs = |(name, digest): &(&String, &String)| self.files.get(*name) != Some(digest);
        match expected.files.iter().find(differs) {
            None => Ok(()),
            Some((name, digest)) => Err(QemuError::Changed {
                file: name.clone(),
                expected: digest.clone(),
                found: self.files.get(name).cloned().unwrap_or_default(),
                version: self.version.clone(),
            }),
        }
    }

    /// Adds the version and the files to `digest`.
    pub(super) fn add_to(&self, digest: &mut Digest) {
        digest.add(&self.version);
        for (name, sha256) in &self.files {
            digest.add(name);
            digest.add(sha256);
        }
    }
}

/// Returns the file name of a path in [`FIRMWARE`].
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_fetched_file_is_pinned() {
        let names = FIRMWARE.iter().map(|(_, path)| file_name(path)).chain([ORIG, DEBIAN]);
        let mut names: Vec<_> = names.map(str::to_owned).collect();
        names.sort();
        assert_eq!(Inputs::pinned().files.into_keys().collect::<Vec<_>>(), names);
    }

    #[test]
    fn a_changed_file_is_named_with_both_digests_and_the_way_on() {
        let folder = tempfile::tempdir().unwrap();
        for (name, _) in PINS {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let before = Inputs::of_folder("1:1-1", folder.path()).unwrap();
        before.check(&before).unwrap();
        fs::write(folder.path().join(ORIG), "changed").unwrap();
        let after = Inputs::of_folder("1:1-1", folder.path()).unwrap();
        let error = after.check(&before).unwrap_err().to_string();
        let advice = "--source-version 1:1-1; then set UNSPIN_VT_QEMU";
        for part in [ORIG, &before.files[ORIG], &after.files[ORIG], advice] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
