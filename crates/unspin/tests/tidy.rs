//! The house rules that a machine can check, over every file that git knows.
//! All violations are listed at once, as `file:line: what`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE_LINES_MAX: usize = 400;
const RUST_COLUMNS_MAX: usize = 100;
/// How far above its block a SAFETY comment may begin, in lines.
const SAFETY_REACH: usize = 6;

/// Files over the limit, each with its reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// Files whose lines are as they are because they hold what others wrote.
const VERBATIM: &[&str] = &["golden/", "snapshots/", "kernel/patches/", "LICENSE-"];

/// The licence of each crate: what runs in or touches the kernel is GPL-2.0-only, what
/// others may want to build on is as free as Rust itself.
const LICENCES: &[(&str, &str)] = &[
    ("lab", "GPL-2.0-only"),
    ("model", "MIT OR Apache-2.0"),
    ("report", "MIT OR Apache-2.0"),
    ("spinbench", "GPL-2.0-only"),
    ("stats", "MIT OR Apache-2.0"),
    ("trace", "MIT OR Apache-2.0"),
    ("unspin", "GPL-2.0-only"),
];

/// A file of the repository.
struct File {
    path: String,
    text: String,
}

impl File {
    fn ends_with(&self, ends: &[&str]) -> bool {
        ends.iter().any(|end| self.path.ends_with(end))
    }

    fn is_rust(&self) -> bool {
        self.ends_with(&[".rs"])
    }

    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    fn violation(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path)
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every text file that is tracked, or new and not ignored.
fn files() -> Vec<File> {
    let listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(listing).current_dir(root()).output();
    let output = output.expect("git lists the files");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let paths = String::from_utf8(output.stdout).expect("paths are UTF-8");
    let read = |path: &str| {
        // A deleted file is still listed; one that is no text is not ours to check.
        let text = fs::read_to_string(root().join(path)).ok()?;
        Some(File { path: path.to_owned(), text })
    };
    paths.split_terminator('\0').filter_map(read).collect()
}

/// Runs one rule over all files that others did not write.
fn check(rule: impl Fn(&File) -> Vec<String>) {
    let files = files();
    let ours = files.iter().filter(|file| !VERBATIM.iter().any(|part| file.path.contains(part)));
    let violations: Vec<String> = ours.flat_map(rule).collect();
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
}

/// The lines of a file for which `what` has something to say.
fn by_line(file: &File, what: impl Fn(&str) -> Option<String>) -> Vec<String> {
    file.lines().filter_map(|(at, line)| Some(file.violation(at, &what(line)?))).collect()
}

#[test]
fn files_are_short() {
    check(|file| {
        let count = file.text.lines().count();
        let code = file.ends_with(&[".rs", ".c", ".h", ".py", ".sh"]);
        let excused = LONG_FILES.iter().any(|(path, _)| *path == file.path);
        if !code || excused || count <= FILE_LINES_MAX {
            return Vec::new();
        }
        vec![file.violation(count, &format!("more than {FILE_LINES_MAX} lines"))]
    });
}

#[test]
fn excuses_are_still_needed() {
    let files = files();
    for (path, reason) in LONG_FILES {
        let file = files.iter().find(|file| file.path == *path);
        let long = file.is_some_and(|file| file.text.lines().count() > FILE_LINES_MAX);
        assert!(long && !reason.is_empty(), "{path}: take it off LONG_FILES");
    }
}

#[test]
fn rust_lines_fit() {
    check(|file| {
        by_line(file, |line| {
            let columns = line.chars().count();
            // A text that an error or a test quotes is not broken for the margin.
            let quotes = line.contains('"');
            let too_long = file.is_rust() && columns > RUST_COLUMNS_MAX && !quotes;
            too_long.then(|| format!("{columns} columns, more than {RUST_COLUMNS_MAX}"))
        })
    });
}

#[test]
fn unsafe_says_why_it_is_sound() {
    let word = ["un", "safe"].concat();
    let marks = ["{", "impl ", "extern "].map(|next| format!("{word} {next}"));
    check(|file| {
        let lines: Vec<&str> = file.text.lines().collect();
        let unexplained = |(at, line): (usize, &str)| {
            let code = line.split("//").next().unwrap_or_default();
            let above = &lines[(at - 1).saturating_sub(SAFETY_REACH)..at];
            let explained = above.iter().any(|line| line.contains("SAFETY:"));
            let opens = marks.iter().any(|mark| code.contains(mark));
            (opens && !explained)
                .then(|| file.violation(at, "no SAFETY comment in the lines above"))
        };
        if file.is_rust() { file.lines().filter_map(unexplained).collect() } else { Vec::new() }
    });
}

#[test]
fn nothing_is_left_for_later() {
    let words = [["TO", "DO"].concat(), ["FIX", "ME"].concat(), ["XX", "X"].concat()];
    check(|file| {
        by_line(file, |line| {
            let found = line
                .split(|c: char| !c.is_alphanumeric())
                .find(|part| words.iter().any(|word| word == part))?;
            Some(format!("{found}: do it now, or open an issue"))
        })
    });
}

#[test]
fn white_space_is_clean() {
    check(|file| {
        let mut found = by_line(file, |line| {
            let tab = file.is_rust() && line.contains('\t');
            let trailing = line.ends_with([' ', '\t']);
            let what = if tab { "a tab" } else { "a space at the end" };
            (tab || trailing).then(|| what.to_owned())
        });
        let count = file.text.lines().count();
        if !file.text.is_empty() && !file.text.ends_with('\n') {
            found.push(file.violation(count, "no newline at the end"));
        }
        if file.text.ends_with("\n\n") {
            found.push(file.violation(count, "an empty line at the end"));
        }
        found
    });
}

#[test]
fn every_crate_has_the_agreed_licence() {
    let manifest = |file: &File| {
        let name = file.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?.to_owned();
        Some(name)
    };
    let field = |file: &File| {
        let line = file.text.lines().find(|line| line.starts_with("license = "));
        line.and_then(|line| line.split('"').nth(1)).unwrap_or_default().to_owned()
    };
    let found: Vec<(String, String)> =
        files().iter().filter_map(|file| Some((manifest(file)?, field(file)))).collect();
    let agreed: Vec<(String, String)> =
        LICENCES.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
    assert_eq!(found, agreed, "crate and licence, found and agreed");
    for text in ["LICENSE-GPL-2.0", "LICENSE-MIT", "LICENSE-APACHE"] {
        assert!(root().join(text).is_file(), "{text} is missing");
    }
}

#[test]
fn links_lead_somewhere() {
    check(|file| {
        let folder = root().join(Path::new(&file.path).parent().unwrap_or(Path::new("")));
        let dead = |line: &str| {
            let target = links(line).find(|target| !folder.join(target).exists())?;
            Some(format!("nothing at {target}"))
        };
        if file.ends_with(&[".md"]) { by_line(file, dead) } else { Vec::new() }
    });
}

/// The relative targets of a line's Markdown links, without their fragments.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let targets = targets.filter(|target| !target.contains("://"));
    targets.filter_map(|target| target.split('#').next()).filter(|target| !target.is_empty())
}
