//! Files of the repository that become part of a source tree.

use std::fs;
use std::path::Path;

use super::SourcesError;

/// Where the code of a tree finds `policy/`.
const HEADERS: &str = "include/policy";

/// Gives a tree the policy headers, by their paths below `policy/`.
pub(super) fn headers(tree: &Path, headers: &[(String, &str)]) -> Result<(), SourcesError> {
    headers.iter().try_for_each(|(path, text)| write(&tree.join(HEADERS).join(path), text))
}

/// Writes a file and makes its folder.
pub(super) fn write(path: &Path, text: &str) -> Result<(), SourcesError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|e| SourcesError::io("create", folder, e))?;
    }
    fs::write(path, text).map_err(|e| SourcesError::io("write", path, e))
}
