//! Checks the language rules that a machine can check: in pages, doc comments (which include help
//! texts), fields of TOML files, comments of scripts, and subjects of commits. One failure lists
//! all violations, as `file:line: what`.

mod rules;
mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Paths that do not follow the rules yet, with the reason. Remove a line when its reason is gone.
const NOT_YET: &[(&str, &str)] = &[];

/// Parts of the paths of files that other people or programs wrote.
const VERBATIM: &[&str] =
    &["/golden/", "/snapshots/", "kernel/patches/", "qemu/patches/", "LICENSE-"];

/// The rule for subjects applies to commits after this one. Results name later commits, so the
/// earlier ones cannot be reworded.
const SUBJECTS_SINCE: &str = "3d18eb68959ab838149f8661f986f2ab3294f894";
const SUBJECT_COLUMNS_MAX: usize = 72;

#[test]
fn every_text_keeps_the_rules() {
    let Some(files) = files() else { return };
    let starts = |path: &str, starts: &str| path.starts_with(starts);
    let mut found = Vec::new();
    for (path, content) in files {
        let skipped = VERBATIM.iter().any(|part| path.contains(part))
            || NOT_YET.iter().any(|(start, _)| starts(&path, start));
        if skipped {
            continue;
        }
        for (line, what) in rules::broken(&path, &content) {
            found.push(format!("{path}:{line}: {what}"));
        }
    }
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

#[test]
fn subjects_of_commits_are_short() {
    let Some(log) = subjects() else { return };
    let long = log.lines().filter_map(long_subject).collect::<Vec<_>>();
    assert!(long.is_empty(), "reword with `git rebase -i`:\n{}", long.join("\n"));
}

#[test]
fn a_long_subject_is_noticed() {
    let at_limit = "x".repeat(SUBJECT_COLUMNS_MAX);
    assert_eq!(long_subject(&format!("0123 {at_limit}")), None);
    assert!(long_subject(&format!("0123 {at_limit}x")).is_some());
}

/// Returns what is wrong with a commit, given as its id and subject.
fn long_subject(line: &str) -> Option<String> {
    let (id, subject) = line.split_once(' ')?;
    let columns = subject.chars().count();
    let long = columns > SUBJECT_COLUMNS_MAX;
    long.then(|| format!("{id}: {columns} columns, more than {SUBJECT_COLUMNS_MAX}: {subject}"))
}

/// Returns each commit's id and subject on a line, or `None` if the history is unknown.
fn subjects() -> Option<String> {
    let known = root().join(".git").exists()
        && git(&["rev-parse", "--is-shallow-repository"]).stdout == b"false\n"
        && git(&["cat-file", "-e", SUBJECTS_SINCE]).status.success();
    if !known {
        eprintln!("skipped: no git checkout with the history since {SUBJECTS_SINCE}");
        return None;
    }
    Some(stdout(git(&["log", "--format=%h %s", &format!("{SUBJECTS_SINCE}..HEAD")])))
}

/// Returns the path and content of all files that git tracks, and of new files that it does not
/// ignore.
fn files() -> Option<Vec<(String, String)>> {
    if !root().join(".git").exists() {
        eprintln!("skipped: without a git checkout, the list of files is not known");
        return None;
    }
    let paths = stdout(git(&["ls-files", "-z", "-c", "-o", "--exclude-standard"]));
    let read = |path: &str| {
        // git also lists deleted files, and binary files are not text.
        let text = fs::read_to_string(root().join(path)).ok()?;
        Some((path.to_owned(), text))
    };
    Some(paths.split_terminator('\0').filter_map(read).collect())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs git. The user of the tests may differ from the user who cloned.
fn git(args: &[&str]) -> Output {
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*"]).args(args).current_dir(root());
    git.output().expect("git is installed")
}

fn stdout(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("paths and subjects are UTF-8")
}
