//! This program in a guest's image: without the commit that it was built from. With it, every
//! commit would make other images, so a run would have another identity after a change to a page.

use std::fs;

use regex::bytes::Regex;

use super::{Content, Image, ImageError, closure, io_error};

<<<<<<< HEAD
/// What a program has before the commit that it was built from, padded with spaces.
=======
/// What a program has before the commit that it was built from, padded with dots.
>>>>>>> wip-demo
pub const COMMIT_MARK: &str = "unspin commit ";

impl Image {
    /// This program, which is every guest's init. `commit` is the one that it was built from.
    pub fn own(commit: &str) -> Result<Image, ImageError> {
        let own = std::env::current_exe().map_err(|e| io_error("/proc/self/exe", e))?;
        let own = fs::canonicalize(&own).map_err(|e| io_error(&own, e))?;
        let mut image = Image::default();
        for library in closure::libraries(&own)? {
            image.add_shared(&library)?;
        }
        let mut program = fs::read(&own).map_err(|e| io_error(&own, e))?;
        forget_commit(&mut program, commit);
        image.put("/usr/bin/unspin", Content::Program(program));
        image.put("/init", Content::Symlink("/usr/bin/unspin".into()));
        Ok(image)
    }
}

<<<<<<< HEAD
/// Overwrites the commit with spaces wherever it follows the mark.
=======
/// Overwrites the commit with dots wherever it follows the mark.
>>>>>>> wip-demo
fn forget_commit(program: &mut [u8], commit: &str) {
    let pattern = regex::escape(&format!("{COMMIT_MARK}{commit}"));
    let Ok(pattern) = Regex::new(&pattern) else { return };
    let ends: Vec<usize> = pattern.find_iter(program).map(|found| found.end()).collect();
    for end in ends {
<<<<<<< HEAD
        program[end - commit.len()..end].fill(b' ');
=======
        program[end - commit.len()..end].fill(b'.');
>>>>>>> wip-demo
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_differ_in_their_commit_become_the_same() {
        let program = |commit: &str| {
<<<<<<< HEAD
            let text = format!("a commit unspin commit {commit:24} b {COMMIT_MARK}");
=======
            let text = format!("a commit unspin commit {commit:.<24} b {COMMIT_MARK}");
>>>>>>> wip-demo
            let mut bytes = text.into_bytes();
            forget_commit(&mut bytes, commit);
            String::from_utf8(bytes).unwrap()
        };
<<<<<<< HEAD
        let expected = format!("a commit unspin commit {:24} b {COMMIT_MARK}", "");
=======
        let expected = format!("a commit unspin commit {:.<24} b {COMMIT_MARK}", "");
>>>>>>> wip-demo
        for commit in ["0123456789ab", "0123456789ab-dirty", "unknown", ""] {
            assert_eq!(program(commit), expected, "{commit}");
        }
    }
}
