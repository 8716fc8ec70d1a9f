//! Files that are compiled in: experiments, claims and workloads.

use include_dir::{Dir, include_dir};

pub(crate) static EXPERIMENTS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../experiments");
pub(crate) static CLAIMS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../claims");
pub(crate) static WORKLOADS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../workloads");

/// The text of `NAME.toml` of a folder; `None` if there is none.
pub(crate) fn text(folder: &'static Dir<'static>, name: &str) -> Option<&'static str> {
    folder.get_file(format!("{name}.toml"))?.contents_utf8()
}

/// The names of a folder's files, sorted.
pub(crate) fn names(folder: &'static Dir<'static>) -> impl Iterator<Item = &'static str> {
    let name = |path: &'static std::path::Path| path.to_str()?.strip_suffix(".toml");
    let mut names: Vec<&str> = folder.files().filter_map(|file| name(file.path())).collect();
    names.sort_unstable();
    names.into_iter()
}
