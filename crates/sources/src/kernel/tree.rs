//! Source trees: unpacked and patched once, then kept, and built out of tree.

use std::cmp::Reverse;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::KernelError;
use super::package::Offer;
use super::recipe::Recipe;
use crate::cache::{Staging, cache_dir, sync};
use crate::command::Runner;
use crate::key::Digest;
use crate::{SourcesError, deb, overlay, patch};

/// Trees that are kept, each 1.7 GB: as many as the lab has kernels of its pinned source.
const TREES_MAX: usize = 3;

/// A source tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) path: PathBuf,
    /// Package and version, or the path.
    pub(super) source: String,
    /// Stands for the content.
    pub(super) identity: String,
}

/// Where the tree of `offer`, with the recipe's headers and patches, is or will be.
pub(super) fn of_package(offer: &Offer, recipe: &Recipe) -> Tree {
    let text = offer.identity();
    let folder = format!("{}_{}_{}", offer.name, offer.version, recipe.tree_digest());
    Tree { path: sources_dir().join(folder), identity: text.clone(), source: text }
}

fn sources_dir() -> PathBuf {
    cache_dir().join("sources")
}

/// Unpacks the tarball of `tree` to its place.
pub(super) fn keep(
    tree: &Tree,
    tarball: &Path,
    recipe: &Recipe,
    staging: &Staging,
    runner: &Runner,
) -> Result<(), KernelError> {
    let (work, home) = (staging.work(), sources_dir());
    let unpacked = work.join("source");
    unpack(tarball, recipe, &unpacked, runner)?;
    fs::create_dir_all(&home).map_err(|e| SourcesError::io("create", &home, e))?;
    make_room(&home, &tree.path, &work)?;
    // As for entries of the cache: what has this name is taken for whole.
    sync(&unpacked)?;
    fs::rename(unpacked, &tree.path).map_err(|e| SourcesError::io("create", &tree.path, e))?;
    Ok(())
}

fn unpack(
    tarball: &Path,
    recipe: &Recipe,
    into: &Path,
    runner: &Runner,
) -> Result<(), KernelError> {
    deb::unpack_source(tarball, into, 1, runner)?;
    overlay::headers(into, &recipe.headers)?;
    recipe.patches.iter().try_for_each(|(name, text)| patch::apply(into, name, text, runner))?;
    Ok(())
}

/// Removes trees in favour of `new`: those of its package and patches, and the oldest if there are
/// too many.
fn make_room(home: &Path, new: &Path, work: &Path) -> Result<(), SourcesError> {
    let mut kept = 1;
    for tree in trees(home) {
        if kept < TREES_MAX && kind(&tree) != kind(new) {
            kept += 1;
            continue;
        }
        // An interrupted removal in its own place would leave a tree that looks complete.
        let gone = work.join("removed");
        fs::rename(&tree, &gone)
            .and_then(|()| fs::remove_dir_all(&gone))
            .map_err(|e| SourcesError::io("remove", &tree, e))?;
    }
    Ok(())
}

/// The trees below `home`, the newest made first.
fn trees(home: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(home).into_iter().flatten().flatten().map(|folder| folder.path());
    let mut trees: Vec<_> = folders.filter(|folder| kind(folder).is_some()).collect();
    let made = |tree: &PathBuf| fs::metadata(tree).and_then(|data| data.modified()).ok();
    trees.sort_by_cached_key(|tree| Reverse(made(tree)));
    trees
}

/// Package and digest in the name of a tree's folder, `PACKAGE_VERSION_DIGEST`.
fn kind(tree: &Path) -> Option<(&str, &str)> {
    let name = tree.file_name()?.to_str()?;
    let (package, rest) = name.split_once('_').filter(|_| name.starts_with("linux-source-"))?;
    Some((package, rest.rsplit_once('_')?.1))
}

/// A tree of the user's own: used as it is; its files' sizes and times are its identity.
pub(super) fn folder(path: &Path) -> Result<Tree, KernelError> {
    let path = path.canonicalize().map_err(|e| SourcesError::io("open the source", path, e))?;
    let makefile = path.join("Kconfig");
    fs::metadata(&makefile)
        .map_err(|e| SourcesError::io("find a kernel source's", &makefile, e))?;
    let source = path.display().to_string();
    let mut digest = Digest::new();
    digest.add(&source);
    walk(&path, &mut digest).map_err(|e| SourcesError::io("read", &path, e))?;
    Ok(Tree { path, source, identity: digest.short() })
}

fn walk(folder: &Path, digest: &mut Digest) -> std::io::Result<()> {
    let mut files = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    files.sort_by_key(|file| file.file_name());
    for file in files.iter().filter(|file| file.file_name() != ".git") {
        let data = file.metadata()?;
        if data.is_dir() {
            walk(&file.path(), digest)?;
        } else {
            let name = file.path();
            let (size, s, ns) = (data.size(), data.mtime(), data.mtime_nsec());
            digest.add(&format!("{} {size} {s}.{ns:09}", name.display()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_another_tree() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("Kconfig"), "a").unwrap();
        fs::create_dir(home.path().join(".git")).unwrap();
        let before = folder(home.path()).unwrap();
        fs::write(home.path().join(".git/index"), "x").unwrap();
        assert_eq!(before, folder(home.path()).unwrap());
        fs::write(home.path().join("Kconfig"), "ab").unwrap();
        assert_ne!(before.identity, folder(home.path()).unwrap().identity);
    }

    /// Makes folders below `home`, each a second younger than the one before.
    fn make(home: &Path, names: &[&str]) {
        for (name, second) in names.iter().zip(1..) {
            fs::create_dir(home.join(name)).unwrap();
            let made = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
            fs::File::open(home.join(name)).unwrap().set_modified(made).unwrap();
        }
    }

    fn left(home: &Path, new: &str) -> Vec<String> {
        let work = tempfile::tempdir().unwrap();
        make_room(home, &home.join(new), work.path()).unwrap();
        let names = fs::read_dir(home).unwrap().map(|f| f.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn of_each_kind_one_tree_is_kept() {
        let home = tempfile::tempdir().unwrap();
        make(home.path(), &["linux-source-6.12_1-1_lab", "linux-source-6.12_1-1_cvm"]);
        let expected = ["linux-source-6.12_1-1_cvm"];
        assert_eq!(left(home.path(), "linux-source-6.12_2-1_lab"), expected);
        assert_eq!(left(home.path(), "linux-source-7.3_2-1_cvm"), expected);
    }

    #[test]
    fn the_oldest_of_too_many_trees_goes() {
        let home = tempfile::tempdir().unwrap();
        let names =
            ["qemu_1_2", "linux-source-6.12_1_a", "linux-source-7.3_1_b", "linux-source-6.12_1_c"];
        make(home.path(), &names);
        let expected = ["linux-source-6.12_1_c", "linux-source-7.3_1_b", "qemu_1_2"];
        assert_eq!(left(home.path(), "linux-source-6.12_2_d"), expected);
    }

    #[test]
    fn a_folder_without_kconfig_is_no_source() {
        let home = tempfile::tempdir().unwrap();
        let error = folder(home.path()).unwrap_err().to_string();
        assert!(error.contains("Kconfig"), "{error}");
    }
}
