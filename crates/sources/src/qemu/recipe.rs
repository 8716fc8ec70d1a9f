//! The changes to QEMU's source: patches, headers, devices and options, all of them files of the
//! repository.

use super::inputs::Inputs;
use crate::key::Digest;
use crate::shipped::{self, Part};

/// Debian's patches that the source needs to configure, because its tarball lacks the firmware
/// images and Python packages that Debian may not ship.
pub(super) const DEBIAN_PATCHES: &[&str] =
    &["skip-unpack-edk2-blobs.patch", "disable-pycotap.patch"];

/// The ingredients that turn a source into the lab's QEMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Recipe {
    /// Names and texts of the patches, in the order in which they apply.
    pub(super) patches: Vec<Part>,
    /// Each header's path below `include/policy/`, and its text.
    pub(super) headers: Vec<(String, &'static str)>,
    /// The content of `configs/devices/i386-softmmu/default.mak`.
    pub(super) devices: &'static str,
    /// Arguments of `configure`.
    pub(super) options: Vec<&'static str>,
}

impl Recipe {
    /// Returns the recipe that this program contains.
    pub(super) fn shipped() -> Self {
        Self {
            patches: shipped::qemu_patches(),
            headers: shipped::host_headers(),
            devices: shipped::qemu_file("devices.mak"),
            options: options(shipped::qemu_file("configure-options")),
        }
    }

    /// Returns a digest of all parts, which identifies the recipe.
    pub(super) fn digest(&self) -> String {
        self.digested().short()
    }

    /// Returns a digest of all ingredients that affect a guest.
    pub(super) fn behaviour(&self, inputs: &Inputs) -> String {
        let mut digest = self.digested();
        inputs.add_to(&mut digest);
        digest.long()
    }

    fn digested(&self) -> Digest {
        let mut digest = Digest::new();
        let mut part = |kind: &str, name: &str, text: &str| {
            [kind, name, text].iter().for_each(|text| digest.add(text));
        };
        DEBIAN_PATCHES.iter().for_each(|name| part("debian", name, ""));
        self.patches.iter().for_each(|(name, text)| part("patch", name, text));
        self.headers.iter().for_each(|(path, text)| part("header", path, text));
        self.options.iter().for_each(|option| part("option", option, ""));
        part("devices", "", self.devices);
        digest
    }
}

/// Returns the options in `text`, one a line. Lines that begin with `#` are comments.
fn options(text: &'static str) -> Vec<&'static str> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_recipe_has_all_parts() {
        let recipe = Recipe::shipped();
        assert!(recipe.devices.contains("CONFIG_Q35=y\n"));
        assert!(recipe.options.contains(&"--without-default-features"));
        assert!(recipe.options.iter().all(|option| option.starts_with("--")));
        assert_eq!(recipe.headers[0].0, "base.h");
        assert!(recipe.patches.iter().all(|(name, text)| {
            name.starts_with(|c: char| c.is_ascii_digit()) && text.contains("\ndiff --git ")
        }));
    }

    #[test]
    fn each_part_changes_digest_and_behaviour() {
        let recipe = Recipe::shipped();
        let inputs = Inputs::pinned();
        let changes: [fn(&mut Recipe); 5] = [
            |recipe| recipe.patches.push(("9999-x.patch", "x")),
            |recipe| recipe.headers[0].1 = "x",
            |recipe| recipe.headers[0].0 = "x.h".into(),
            |recipe| recipe.devices = "x",
            |recipe| recipe.options.push("--x"),
        ];
        for change in changes {
            let mut other = recipe.clone();
            change(&mut other);
            assert_ne!(other.digest(), recipe.digest());
            assert_ne!(other.behaviour(&inputs), recipe.behaviour(&inputs));
        }
    }

    #[test]
    fn firmware_and_version_change_the_behaviour() {
        let (recipe, inputs) = (Recipe::shipped(), Inputs::pinned());
        let mut firmware = inputs.clone();
        firmware.files.insert("bios-256k.bin".into(), "0".into());
        let version = Inputs { version: "1:10.0.14+ds-1".into(), ..inputs.clone() };
        for other in [firmware, version] {
            assert_ne!(recipe.behaviour(&other), recipe.behaviour(&inputs));
        }
    }

    #[test]
    fn comments_are_no_options() {
        assert_eq!(options("# why\n--a\n\n  --b=c\n"), ["--a", "--b=c"]);
    }
}
