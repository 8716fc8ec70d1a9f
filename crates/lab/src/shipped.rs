//! Files that are compiled into the program: experiments, claims and workloads.

use include_dir::{Dir, include_dir};

pub(crate) static EXPERIMENTS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../experiments");
pub(crate) static CLAIMS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../claims");
pub(crate) static WORKLOADS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../workloads");

/// Returns the text of `NAME.toml` in a folder, or `None` if the folder has no such file.
pub(crate) fn text(folder: &'static Dir<'static>, name: &str) -> Option<&'static str> {
    folder.get_file(format!("{name}.toml"))?.contents_utf8()
}

/// Returns the names of a folder's TOML files without their extension, sorted.
pub(crate) fn names(folder: &'static Dir<'static>) -> impl Iterator<Item = &'static str> {
    let name = |path: &'static std::path::Path| path.to_str()?.strip_suffix(".toml");
    let mut names: Vec<&str> = folder.files().filter_map(|file| name(file.path())).collect();
    names.sort_unstable();
    names.into_iter()
}
