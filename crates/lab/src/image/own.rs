//! unspin's own programs in a guest's image. Every guest has the init. Only guests that run
//! `unspin` contain that program, so no other run depends on its help texts, its claims or the
//! experiments that are compiled into it.

use std::fs;
use std::path::{Path, PathBuf};

use regex::bytes::Regex;

use super::{Content, Image, ImageError, closure, io_error};

/// The text that precedes the commit in a program's binary. The commit is padded with dots.
pub const COMMIT_MARK: &str = "unspin commit ";

/// The name of this program in an experiment's commands and a workload's programs.
pub const OWN_NAME: &str = "unspin";
/// The path of this program in the guests that have it.
pub const OWN_PATH: &str = "/usr/bin/unspin";

const INIT_NAME: &str = "unspin-init";
/// Folders in which an installation may keep the init, relative to the folder of the running
/// program.
const INIT_FOLDERS: [&str; 2] = [".", "../lib/unspin"];

/// unspin's own programs on this machine.
#[derive(Debug, Clone, Default)]
pub struct Own {
    /// The init of every guest.
    pub init: PathBuf,
    /// The running program.
    pub unspin: PathBuf,
    /// The commit that the running program was built from. No image contains it.
    pub commit: String,
}

impl Own {
    /// Finds the running program, which was built from `commit`, and the init that belongs to it.
    ///
    /// # Errors
    /// [`ImageError::NoInit`] if the init is not found.
    pub fn find(commit: &str) -> Result<Own, ImageError> {
        let unspin = std::env::current_exe().map_err(|e| io_error("/proc/self/exe", e))?;
        let unspin = fs::canonicalize(&unspin).map_err(|e| io_error(&unspin, e))?;
        let init = find_init(unspin.parent().unwrap_or(Path::new("/")))?;
        Ok(Own { init, unspin, commit: commit.to_owned() })
    }

    /// Makes an image of the init and its libraries. The init has the path that the kernel
    /// looks for.
    pub fn init(&self) -> Result<Image, ImageError> {
        let mut image = Image::default();
        image.add_program_as(&self.init, Path::new("/init"))?;
        Ok(image)
    }

    /// Makes an image of this program and its libraries, with the commit blanked out. Otherwise
    /// every commit would change the image, and even a documentation change would give a run
    /// another identity.
    pub fn unspin(&self) -> Result<Image, ImageError> {
        let mut image = Image::default();
        for library in closure::libraries(&self.unspin)? {
            image.add_shared(&library)?;
        }
        let mut program = fs::read(&self.unspin).map_err(|e| io_error(&self.unspin, e))?;
        forget_commit(&mut program, &self.commit);
        image.put(OWN_PATH, Content::Program(program));
        Ok(image)
    }
}

fn find_init(folder: &Path) -> Result<PathBuf, ImageError> {
    let places = INIT_FOLDERS.map(|place| folder.join(place).join(INIT_NAME));
    let found = places.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| ImageError::NoInit { folder: folder.display().to_string() })
}

/// Overwrites the commit with dots wherever it follows the mark.
fn forget_commit(program: &mut [u8], commit: &str) {
    let pattern = regex::escape(&format!("{COMMIT_MARK}{commit}"));
    let Ok(pattern) = Regex::new(&pattern) else { return };
    let ends: Vec<usize> = pattern.find_iter(program).map(|found| found.end()).collect();
    for end in ends {
        program[end - commit.len()..end].fill(b'.');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_differ_in_their_commit_become_the_same() {
        let program = |commit: &str| {
            let text = format!("a commit unspin commit {commit:.<24} b {COMMIT_MARK}");
            let mut bytes = text.into_bytes();
            forget_commit(&mut bytes, commit);
            String::from_utf8(bytes).unwrap()
        };
        let expected = format!("a commit unspin commit {:.<24} b {COMMIT_MARK}", "");
        for commit in ["0123456789ab", "0123456789ab-dirty", "unknown", ""] {
            assert_eq!(program(commit), expected, "{commit}");
        }
    }

    #[test]
    fn the_init_is_found_beside_the_program_and_where_installations_keep_it() {
        for place in ["bin", "lib/unspin"] {
            let prefix = tempfile::tempdir().unwrap();
            let (bin, place) = (prefix.path().join("bin"), prefix.path().join(place));
            fs::create_dir_all(&bin).unwrap();
            fs::create_dir_all(&place).unwrap();
            let missing = find_init(&bin).unwrap_err().to_string();
            assert!(missing.contains("cargo build --workspace"), "{missing}");
            fs::write(place.join(INIT_NAME), "").unwrap();
            let found = fs::canonicalize(find_init(&bin).unwrap()).unwrap();
            assert_eq!(found, fs::canonicalize(place).unwrap().join(INIT_NAME));
        }
    }

    #[test]
    fn the_images_hold_each_program_under_the_guests_path() {
        let folder = tempfile::tempdir().unwrap();
        let (init, unspin) = (folder.path().join("i"), folder.path().join("u"));
        fs::write(&init, "an init").unwrap();
        fs::write(&unspin, "a program").unwrap();
        let own = Own { init, unspin, commit: String::new() };
        let (init, unspin) = (own.init().unwrap(), own.unspin().unwrap());
        assert!(init.contains("/init") && !init.contains(OWN_PATH));
        assert!(unspin.contains(OWN_PATH) && !unspin.contains("/init"));
    }
}
