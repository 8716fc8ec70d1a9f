//! The changes to a kernel's source: the configuration fragments and patches in the repository's
//! folder `kernel/`, and the headers of `policy/` that the patches use.

use super::spec::Source;
use crate::key::Digest;
use crate::shipped::{self, Part};

/// Headers that KVM's part of vNAE includes.
const ES_HEADERS: &[&str] = &["base.h", "host/config.h", "host/vnae.h"];

/// The ingredients that turn a source into a lab kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Recipe {
    pub(super) fragments: Vec<Part>,
    pub(super) patches: Vec<Part>,
    /// Each header's path below `include/policy/`, and its text.
    pub(super) headers: Vec<(String, &'static str)>,
}

impl Recipe {
    /// Returns the recipe for `source`. Only the pinned source is patched.
    pub(super) fn of(source: &Source) -> Self {
        let mut recipe = Self {
            fragments: shipped::kernel_fragments(),
            patches: Vec::new(),
            headers: Vec::new(),
        };
        if source.is_pinned() {
            recipe.patches = shipped::kernel_patches();
        }
        let [fragments, patches] = match source {
            Source::LabCvm => shipped::cvm_kernel_parts(),
            Source::LabEs => shipped::es_emu_kernel_parts(),
            _ => [Vec::new(), Vec::new()],
        };
        if *source == Source::LabEs {
            recipe.headers = shipped::host_headers();
            recipe.headers.retain(|(path, _)| ES_HEADERS.contains(&path.as_str()));
        }
        recipe.fragments.extend(fragments);
        recipe.patches.extend(patches);
        recipe
    }

    /// Returns all fragments as one file for `KCONFIG_ALLCONFIG`.
    pub(super) fn config(&self) -> String {
        self.fragments.iter().map(|(_, text)| *text).collect::<Vec<_>>().join("\n")
    }

    /// Returns a digest of all parts, which identifies the recipe.
    pub(super) fn digest(&self) -> String {
        self.digest_with(&self.fragments)
    }

    /// Returns a digest of headers and patches, which identifies the patched source tree.
    pub(super) fn tree_digest(&self) -> String {
        self.digest_with(&[])
    }

    /// Returns the digest of the parts and their names. Names decide the order of the parts.
    fn digest_with(&self, fragments: &[Part]) -> String {
        let mut digest = Digest::new();
        let mut add = |kind: &str, name: &str, text: &str| {
            [kind, name, text].iter().for_each(|text| digest.add(text));
        };
        fragments.iter().for_each(|(name, text)| add("fragment", name, text));
        self.patches.iter().for_each(|(name, text)| add("patch", name, text));
        self.headers.iter().for_each(|(path, text)| add("header", path, text));
        digest.short()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_follows_the_content() {
        let lab = Recipe::of(&Source::Lab);
        let mut other = lab.clone();
        assert_eq!(lab.digest(), other.digest());
        other.fragments[0].1 = "CONFIG_SMP=n\n";
        assert_ne!(lab.digest(), other.digest());
        assert_eq!(lab.tree_digest(), other.tree_digest());
    }

    #[test]
    fn only_the_pinned_source_is_patched() {
        let other = Recipe::of(&Source::Package("linux-source-7.3".into()));
        assert!(other.patches.is_empty() && !Recipe::of(&Source::Lab).patches.is_empty());
        assert_ne!(other.digest(), Recipe::of(&Source::Lab).digest());
    }

    #[test]
    fn a_confidential_guests_kernel_is_the_labs_and_more() {
        let (lab, cvm) = (Recipe::of(&Source::Lab), Recipe::of(&Source::LabCvm));
        assert_eq!(cvm.fragments[..lab.fragments.len()], lab.fragments);
        assert!(!lab.config().contains("AMD_MEM_ENCRYPT"));
        assert!(cvm.config().contains("CONFIG_AMD_MEM_ENCRYPT=y"));
        assert!(cvm.patches.len() > lab.patches.len() && cvm.digest() != lab.digest());
    }

    #[test]
    fn a_host_that_emulates_sev_es_has_the_labs_kernel_and_more() {
        let (lab, es) = (Recipe::of(&Source::Lab), Recipe::of(&Source::LabEs));
        assert_eq!(es.fragments[..lab.fragments.len()], lab.fragments);
        assert!(!lab.config().contains("KVM_AMD_ES_EMU"));
        assert!(es.config().contains("CONFIG_KVM_AMD_ES_EMU=y"));
        assert!(es.patches.len() > lab.patches.len() && es.digest() != lab.digest());
        assert!(lab.headers.is_empty() && es.headers.len() == ES_HEADERS.len());
        let mut other = es.clone();
        other.headers[0].1 = "x";
        assert_ne!(es.tree_digest(), other.tree_digest());
    }

    #[test]
    fn static_keys_stay_off_and_sched_ext_on() {
        let config = Recipe::of(&Source::Lab).config();
        assert!(config.lines().any(|line| line == "# CONFIG_JUMP_LABEL is not set"));
        assert!(config.lines().any(|line| line == "CONFIG_SCHED_CLASS_EXT=y"));
    }
}
