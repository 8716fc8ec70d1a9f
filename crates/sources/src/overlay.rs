//! Adds files of the repository to a source tree.

use std::fs;
use std::path::Path;

use super::SourcesError;

/// The folder of `policy/` in a source tree.
const HEADERS: &str = "include/policy";

/// Writes the policy headers into a tree. Each header has its path below `policy/`.
pub(super) fn headers(tree: &Path, headers: &[(String, &str)]) -> Result<(), SourcesError> {
    headers.iter().try_for_each(|(path, text)| write(&tree.join(HEADERS).join(path), text))
}

/// Writes a file and creates its folder.
pub(super) fn write(path: &Path, text: &str) -> Result<(), SourcesError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|e| SourcesError::io("create", folder, e))?;
    }
    fs::write(path, text).map_err(|e| SourcesError::io("write", path, e))
}
