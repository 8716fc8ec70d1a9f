//! Checks for free space before long work starts.

use std::path::Path;

use nix::sys::statvfs::statvfs;

use super::SourcesError;

/// Checks that `needed` bytes are free in the file system of `path`.
pub(super) fn check(path: &Path, needed: u64) -> Result<(), SourcesError> {
    let stat = statvfs(path).map_err(|errno| SourcesError::io("look at", path, errno.into()))?;
    let free = stat.blocks_available() as u64 * stat.fragment_size() as u64;
    if free < needed {
        return Err(SourcesError::Space { path: path.into(), free, needed });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_an_exbibyte() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check(folder.path(), 1).is_ok());
        let error = check(folder.path(), 1 << 60).unwrap_err().to_string();
        assert!(error.contains("UNSPIN_CACHE"), "{error}");
    }
}
