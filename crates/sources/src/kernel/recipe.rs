//! What is done to a kernel source: fragments of configuration and patches.
//!
//! They are part of the program, so that an installed `unspin` builds without a
//! checkout. Their home is the folder `kernel/` of the repository.

use super::spec::Source;
use crate::key::Digest;

/// A file of `kernel/`, by name.
type Part = (&'static str, &'static str);

macro_rules! part {
    ($folder:literal, $name:literal) => {
        ($name, include_str!(concat!("../../../../kernel/", $folder, "/", $name)))
    };
}

/// All fragments, in the order in which they are merged.
const FRAGMENTS: &[Part] = &[
    part!("config", "00-machine.config"),
    part!("config", "10-userspace.config"),
    part!("config", "20-sched.config"),
    part!("config", "30-virt.config"),
    part!("config", "40-observe.config"),
    part!("config", "50-emulation.config"),
];

/// The patches for the pinned source, in the order in which they apply.
const PATCHES: &[Part] = &[
    part!("patches", "0001-KVM-SVM-Count-PAUSE-exits-in-software-where-there-is.patch"),
    part!("patches", "0002-KVM-x86-Report-PAUSE-exits-and-pause-loops-in-the-vC.patch"),
    part!("patches", "0003-KVM-Report-the-directed-yields-of-spinning-vCPUs.patch"),
];

/// What makes a lab kernel out of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Recipe {
    pub(super) fragments: Vec<Part>,
    pub(super) patches: Vec<Part>,
}

impl Recipe {
    /// The recipe for `source`: only the pinned one is patched.
    pub(super) fn of(source: &Source) -> Self {
        let patches = if *source == Source::Lab { PATCHES } else { &[] };
        Self { fragments: FRAGMENTS.into(), patches: patches.into() }
    }

    /// All fragments in one, as `KCONFIG_ALLCONFIG` takes them.
    pub(super) fn config(&self) -> String {
        self.fragments.iter().map(|(_, text)| *text).collect::<Vec<_>>().join("\n")
    }

    /// Stands for the content of all parts.
    pub(super) fn digest(&self) -> String {
        digest(&self.fragments, &self.patches)
    }

    /// Stands for the content of the patches, and so for a patched source tree.
    pub(super) fn patches_digest(&self) -> String {
        digest(&[], &self.patches)
    }
}

/// Names count as well: they decide the order.
fn digest(fragments: &[Part], patches: &[Part]) -> String {
    let mut digest = Digest::new();
    for (kind, parts) in [("fragment", fragments), ("patch", patches)] {
        for (name, text) in parts {
            digest.add(kind);
            digest.add(name);
            digest.add(text);
        }
    }
    digest.short()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_of_the_folder_is_embedded() {
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel");
        for (folder, parts) in [("config", FRAGMENTS), ("patches", PATCHES)] {
            let files: BTreeSet<String> = std::fs::read_dir(home.join(folder))
                .unwrap()
                .map(|file| file.unwrap().file_name().to_string_lossy().into_owned())
                .collect();
            let embedded = parts.iter().map(|(name, _)| name.to_string()).collect();
            assert_eq!(files, embedded, "{folder}");
            assert!(parts.is_sorted(), "{folder}");
        }
    }

    #[test]
    fn the_digest_follows_the_content() {
        let lab = Recipe::of(&Source::Lab);
        let mut other = lab.clone();
        assert_eq!(lab.digest(), other.digest());
        other.fragments[0].1 = "CONFIG_SMP=n\n";
        assert_ne!(lab.digest(), other.digest());
        assert_eq!(lab.patches_digest(), other.patches_digest());
    }

    #[test]
    fn only_the_pinned_source_is_patched() {
        let other = Recipe::of(&Source::Package("linux-source-7.3".into()));
        assert!(other.patches.is_empty() && !Recipe::of(&Source::Lab).patches.is_empty());
        assert_ne!(other.digest(), Recipe::of(&Source::Lab).digest());
    }

    #[test]
    fn static_keys_stay_off_and_sched_ext_on() {
        let config = Recipe::of(&Source::Lab).config();
        assert!(config.lines().any(|line| line == "# CONFIG_JUMP_LABEL is not set"));
        assert!(config.lines().any(|line| line == "CONFIG_SCHED_CLASS_EXT=y"));
    }
}
