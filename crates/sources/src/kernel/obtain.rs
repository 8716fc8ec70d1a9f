//! Obtains the source for a build, or the kernel of an earlier build. The cache is searched first,
//! because that needs neither network nor free space.

use std::path::PathBuf;

use super::entry::{Entry, instead, kernels, kernels_dir};
use super::package::{self, Offer};
use super::recipe::Recipe;
use super::spec::{PINNED, Source};
use super::tree::{self, Tree};
use super::{Kernel, KernelError};
use crate::cache::{Staging, entries};
use crate::command::{Runner, compiler};
use crate::key::build_key;
use crate::{Progress, SourcesError, space};

/// Peak space of source tree and objects, in bytes.
const SPACE: u64 = 5 << 30;

/// The ingredients of a kernel, and the folder of the kernels built before.
pub(super) struct Wanted<'a> {
    pub(super) home: PathBuf,
    pub(super) source: &'a Source,
    pub(super) recipe: Recipe,
    /// First line of the compiler's `--version`.
    pub(super) compiler: String,
}

/// A source, as far as it is known without network.
pub(super) enum Origin {
    Folder(Tree),
    Offer(Offer),
    /// A package whose version only Debian's archive knows.
    Archive(String),
}

/// The starting point of a build.
pub(super) enum Found {
    /// A kernel from an earlier build.
    Kernel(Kernel),
    /// The source tree, and the tarball to unpack if the tree does not exist yet.
    Tree(Tree, Option<PathBuf>),
}

impl<'a> Wanted<'a> {
    /// Returns the lab's recipe for `source`, with this machine's compiler.
    ///
    /// # Errors
    /// If the compiler does not run.
    pub(super) fn of(source: &'a Source) -> Result<Self, SourcesError> {
        let compiler = compiler()?;
        Ok(Self { home: kernels_dir(), source, recipe: Recipe::of(source), compiler })
    }
}

impl Wanted<'_> {
    /// Returns the end of the id of a kernel that is built from the source with this identity.
    pub(super) fn key(&self, identity: &str) -> String {
        build_key(identity, &self.recipe.digest(), &self.compiler)
    }

    /// Returns the current source. The call writes no files.
    ///
    /// # Errors
    /// If a folder is not a kernel's source.
    pub(super) fn origin(&self) -> Result<Origin, KernelError> {
        let name: &str = match self.source {
            Source::Dir(path) => return Ok(Origin::Folder(tree::folder(path)?)),
            Source::Package(name) => name,
            Source::Lab | Source::LabCvm | Source::LabEs => PINNED,
        };
        Ok(package::known(name).map_or_else(|| Origin::Archive(name.into()), Origin::Offer))
    }

    /// Returns the kernel that was built from `origin` before, if the origin's version is known.
    pub(super) fn cached(&self, origin: &Origin) -> Result<Option<Kernel>, KernelError> {
        let identity = match origin {
            Origin::Folder(tree) => tree.identity.clone(),
            Origin::Offer(offer) => offer.identity(),
            Origin::Archive(_) => return Ok(None),
        };
        let end = format!("-{}", self.key(&identity));
        Ok(kernels(&self.home)?.into_iter().find(|kernel| kernel.id.ends_with(&end)))
    }

    /// Returns the source for a build, or the kernel if another process has built it meanwhile.
    ///
    /// # Errors
    /// If space or network is missing.
    pub(super) fn find(
        &self,
        origin: Origin,
        staging: &Staging,
        runner: &Runner,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Found, KernelError> {
        if let Origin::Archive(name) = &origin {
            let offer = package::debian(name, runner, progress)?;
            return self.find(Origin::Offer(offer), staging, runner, progress);
        }
        if let Some(kernel) = self.cached(&origin)? {
            return Ok(Found::Kernel(kernel));
        }
        space::check(&self.home, SPACE)?;
        match origin {
            Origin::Folder(tree) => Ok(Found::Tree(tree, None)),
            Origin::Offer(offer) => self.get(offer, staging, runner, progress),
            Origin::Archive(_) => unreachable!("the archive has made an offer"),
        }
    }

    /// Returns the offer's tree, and its tarball if the tree has to be unpacked first.
    fn get(
        &self,
        offer: Offer,
        staging: &Staging,
        runner: &Runner,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Found, KernelError> {
        let tree = tree::of_package(&offer, &self.recipe);
        if tree.path.is_dir() {
            return Ok(Found::Tree(tree, None));
        }
        match offer.tarball(&staging.work(), runner, progress)? {
            Some(tarball) => Ok(Found::Tree(tree, Some(tarball))),
            None => self.find(Origin::Archive(offer.name), staging, runner, progress),
        }
    }

    /// Returns the most recently made kernel of the same recipe and compiler, from any version of
    /// the package. It warns that `error` prevented the search for the source.
    ///
    /// # Errors
    /// `error`, if no such kernel exists. A folder has no versions, so it never has such a kernel.
    pub(super) fn instead(&self, error: KernelError) -> Result<Kernel, KernelError> {
        let (spec, recipe) = (self.source.spec(), self.recipe.digest());
        let fits = |entry: &Entry| {
            let Kernel { id, source, .. } = &entry.kernel;
            entry.kernel.spec == spec
                && entry.recipe.as_ref() == Some(&recipe)
                && id.ends_with(&format!("-{}", self.key(source)))
        };
        let cached = entries(&self.home)?.into_iter().find(fits).map(|entry| entry.kernel);
        instead(cached, error)
    }
}

#[cfg(test)]
#[path = "obtain_tests.rs"]
mod tests;
