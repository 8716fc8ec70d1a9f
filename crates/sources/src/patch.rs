//! Applies patches in the form of `git format-patch`.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::SourcesError;
use super::command::Runner;

/// Applies one patch to `tree`. A hunk that needs fuzz fails, because it may land in the wrong
/// place.
pub(super) fn apply(
    tree: &Path,
    name: &str,
    text: &str,
    runner: &Runner,
) -> Result<(), SourcesError> {
    let file = tree.join(".unspin.patch");
    fs::write(&file, text).map_err(|e| SourcesError::io("write", &file, e))?;
    let mut command = Command::new("patch");
    command.current_dir(tree).args(["-p1", "--fuzz=0", "--forward", "--batch", "--input"]);
    command.arg(&file);
    runner.run(&format!("applying {name}"), &mut command, &mut |_| ())?;
    fs::remove_file(&file).map_err(|e| SourcesError::io("remove", &file, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_that_does_not_fit_fails() {
        let home = tempfile::tempdir().unwrap();
        let runner = Runner::new(home.path().join("log")).unwrap();
        fs::write(home.path().join("f"), "a\nb\n").unwrap();
        let text = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n";
        apply(home.path(), "0001", text, &runner).unwrap();
        assert_eq!(fs::read_to_string(home.path().join("f")).unwrap(), "a\nc\n");
        let error = apply(home.path(), "0001", text, &runner).unwrap_err().to_string();
        assert!(error.contains("applying 0001 failed"), "{error}");
    }
}
