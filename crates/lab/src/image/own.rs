//! This program in a guest's image: without the commit that it was built from. With it, every
//! commit would make other images, so a run would have another identity after a change to a page.

use std::fs;

use regex::bytes::Regex;

use super::{Content, Image, ImageError, closure, io_error};

/// What a program has before the commit that it was built from, padded with dots.
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
}
