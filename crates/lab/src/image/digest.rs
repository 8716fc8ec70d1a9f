//! Digests of an image's content. They do not depend on where the files lie on the host.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use unspin_model::Identity;

use super::{Content, Image, ImageError, io_error};

/// Digests of host files. Each file is read only once.
#[derive(Debug, Default)]
pub struct FileDigests(HashMap<PathBuf, Identity>);

impl FileDigests {
    /// Returns the digest of a file's content.
    pub fn of(&mut self, file: &Path) -> Result<Identity, ImageError> {
        if let Some(known) = self.0.get(file) {
            return Ok(known.clone());
        }
        let digest = Identity::of_bytes(&fs::read(file).map_err(|e| io_error(file, e))?);
        self.0.insert(file.to_owned(), digest.clone());
        Ok(digest)
    }
}

impl Image {
    /// Returns a digest over every guest path, its content, and the mode of each copied file.
    pub fn digest(&self, files: &mut FileDigests) -> Result<Identity, ImageError> {
        let mut list = String::new();
        for (guest, content) in &self.files {
            let content = match content {
                Content::Directory => "folder".to_owned(),
                Content::Symlink(target) => format!("to {}", target.display()),
                Content::Bytes(bytes) | Content::Program(bytes) => {
                    Identity::of_bytes(bytes).to_string()
                }
                Content::Copy(host) => {
                    let mode = fs::metadata(host).map_err(|e| io_error(host, e))?.mode();
                    format!("{} {:o}", files.of(host)?, mode & 0o777)
                }
            };
            list += &format!("{} {content}\n", guest.display());
        }
        Ok(Identity::of_bytes(list.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_counts_and_the_place_on_the_host_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let digest = |name: &str, text: &str| {
            let host = folder.path().join(name);
            fs::write(&host, text).unwrap();
            let mut image = Image::default();
            image.add_file_as(&host, "/usr/bin/a");
            image.digest(&mut FileDigests::default()).unwrap()
        };
        assert_eq!(digest("one", "x"), digest("other", "x"));
        assert_ne!(digest("one", "x"), digest("one", "y"));
    }
}
