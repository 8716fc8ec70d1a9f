//! Checks the house rules that a machine can check, in every file that git knows. One failure lists
//! all violations, as `file:line: what`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE_LINES_MAX: usize = 400;
const RUST_COLUMNS_MAX: usize = 100;
/// Maximum distance of a SAFETY comment above its block, in lines.
const SAFETY_REACH: usize = 6;

/// Files above the limit, each with its reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// Parts of the paths of files that other people or programs wrote, which stay unchanged.
const VERBATIM: &[&str] = &[
    "/golden/",
    "/snapshots/",
    "kernel/patches/",
    "kernel/cvm/",
    "kernel/es-emu/",
    "qemu/patches/",
    "tests/sev-es/unpoisoned.patch",
    "LICENSE-",
];

/// The licence of each crate. Code that runs in the kernel or changes it is GPL-2.0-only. Code that
/// others may build on has Rust's own licences.
const LICENCES: &[(&str, &str)] = &[
    ("analysis", "MIT OR Apache-2.0"),
    ("cvm", "MIT OR Apache-2.0"),
    ("guest", "GPL-2.0-only"),
    ("host", "GPL-2.0-only"),
    ("init", "GPL-2.0-only"),
    ("lab", "GPL-2.0-only"),
    ("model", "MIT OR Apache-2.0"),
    ("policy", "MIT OR GPL-2.0-only"),
    ("report", "MIT OR Apache-2.0"),
    ("sources", "GPL-2.0-only"),
    ("spinbench", "GPL-2.0-only"),
    ("stats", "MIT OR Apache-2.0"),
    ("trace", "MIT OR Apache-2.0"),
    ("unspin", "GPL-2.0-only"),
    ("vmm", "MIT OR Apache-2.0"),
    ("wire", "GPL-2.0-only"),
];

/// Violations of a rule: line, from 1, and the reason.
type Violations = Vec<(usize, String)>;

const RULES: &[fn(&File) -> Violations] = &[
    short_file,
    short_lines,
    explained_unsafe,
    nothing_for_later,
    no_tabs,
    clean_ends,
    agreed_licence,
    live_links,
    compiled_test,
    not_derived,
];

#[test]
fn every_file_keeps_the_house_rules() {
    let Some(files) = files() else { return };
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !VERBATIM.iter().any(|part| file.path.contains(part))) {
        for (line, what) in RULES.iter().flat_map(|rule| rule(file)) {
            found.push(format!("{}:{line}: {what}", file.path));
        }
    }
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

#[test]
fn each_rule_catches_what_it_is_for() {
    let later = ["TO", "DO"].concat();
    let opens = ["    un", "safe {"].concat();
    let samples = [
        ("a.rs", "\n".repeat(FILE_LINES_MAX + 1) + "x\n", FILE_LINES_MAX + 2),
        ("a.rs", format!("ok\n// {}\n", "x".repeat(RUST_COLUMNS_MAX)), 2),
        ("a.rs", format!("// SAFETY: fine.\n{opens}\n{}\n{opens}\n", "\n".repeat(5)), 9),
        ("a.md", format!("# {later}: more\n"), 1),
        ("results/demo/summary.json", "{}\n".to_owned(), 1),
        ("a.rs", "a\n\tb\n".to_owned(), 2),
        ("a.toml", "a\nb".to_owned(), 2),
        ("a.toml", "a \nb\n".to_owned(), 1),
        ("a.toml", "a\n\n".to_owned(), 2),
        ("crates/stats/Cargo.toml", "license = \"GPL-2.0-only\"\n".to_owned(), 1),
        ("crates/new/Cargo.toml", "license = \"GPL-2.0-only\"\n".to_owned(), 1),
        ("docs/a.md", "\n[a](../README.md) [b](https://x/y) [c](none.md)\n".to_owned(), 2),
        ("docs/a.md", "# It's a b\n[a](#its-a-b)\n[b](#b)\n".to_owned(), 3),
        ("docs/a.md", "[a](../README.md#unspin)\n[b](../README.md#none)\n".to_owned(), 2),
    ];
    for (path, text, line) in samples {
        let file = File { path: path.to_owned(), text };
        let lines: Vec<usize> =
            RULES.iter().flat_map(|rule| rule(&file)).map(|(line, _)| line).collect();
        assert_eq!(lines, [line], "{path}: {:?}", file.text);
    }
}

#[test]
fn every_excuse_is_needed_and_every_licence_is_here() {
    for (path, reason) in LONG_FILES {
        let text = fs::read_to_string(root().join(path)).unwrap_or_default();
        let needed = text.lines().count() > FILE_LINES_MAX && !reason.is_empty();
        assert!(needed, "{path}: take it off LONG_FILES");
    }
    for text in ["LICENSE-GPL-2.0", "LICENSE-MIT", "LICENSE-APACHE"] {
        assert!(root().join(text).is_file(), "{text} is missing");
    }
}

/// A text file; its path is relative to the repository.
struct File {
    path: String,
    text: String,
}

impl File {
    fn is(&self, kinds: &[&str]) -> bool {
        kinds.iter().any(|kind| self.path.ends_with(kind))
    }

    fn last_line(&self) -> usize {
        self.text.lines().count()
    }

    /// Returns the lines for which `judge` returns a reason.
    fn by_line(&self, judge: impl Fn(&str) -> Option<String>) -> Violations {
        let lines = self.text.lines().enumerate();
        lines.filter_map(|(index, line)| Some((index + 1, judge(line)?))).collect()
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the files that git tracks, and new files that it does not ignore. Returns `None` without
/// a checkout.
fn files() -> Option<Vec<File>> {
    if !root().join(".git").exists() {
        eprintln!("skipped: this is no git checkout, so the list of files is not known");
        return None;
    }
    // The user of the tests may differ from the user who cloned.
    let listing = ["-c", "safe.directory=*", "ls-files", "-z", "-c", "-o", "--exclude-standard"];
    let output = Command::new("git").args(listing).current_dir(root()).output();
    let output = output.expect("git is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let paths = String::from_utf8(output.stdout).expect("paths are UTF-8");
    let read = |path: &str| {
        // git also lists deleted files, and binary files are not text.
        let text = fs::read_to_string(root().join(path)).ok()?;
        Some(File { path: path.to_owned(), text })
    };
    Some(paths.split_terminator('\0').filter_map(read).collect())
}

fn short_file(file: &File) -> Violations {
    let code = file.is(&[".rs", ".c", ".h", ".py", ".sh"]);
    let excused = LONG_FILES.iter().any(|(path, _)| *path == file.path);
    if !code || excused || file.last_line() <= FILE_LINES_MAX {
        return Violations::new();
    }
    vec![(file.last_line(), format!("more than {FILE_LINES_MAX} lines"))]
}

/// Checks that git does not track the files that `unspin lab report` generates.
fn not_derived(file: &File) -> Violations {
    let derived = file.path.starts_with("results/") && file.is(&["/summary.json", "/report.html"]);
    if derived { vec![(1, "it is made from runs.jsonl".to_owned())] } else { Vec::new() }
}

fn short_lines(file: &File) -> Violations {
    file.by_line(|line| {
        let columns = line.chars().count();
        // Lines with a string literal may be longer, because breaking printed text would obscure
        // it.
        let quotes = line.contains('"');
        let long = file.is(&[".rs"]) && columns > RUST_COLUMNS_MAX && !quotes;
        long.then(|| format!("{columns} columns, more than {RUST_COLUMNS_MAX}"))
    })
}

fn explained_unsafe(file: &File) -> Violations {
    let word = ["un", "safe"].concat();
    let marks = ["{", "impl ", "extern "].map(|next| format!("{word} {next}"));
    let lines: Vec<&str> = file.text.lines().collect();
    let unexplained = |index: usize| {
        let code = lines[index].split("//").next().unwrap_or_default();
        let above = &lines[index.saturating_sub(SAFETY_REACH)..=index];
        let opens = marks.iter().any(|mark| code.contains(mark));
        opens && !above.iter().any(|line| line.contains("SAFETY:"))
    };
    let found = (0..lines.len()).filter(|index| file.is(&[".rs"]) && unexplained(*index));
    found.map(|index| (index + 1, "no SAFETY comment in the lines above".into())).collect()
}

fn nothing_for_later(file: &File) -> Violations {
    let marks = [["TO", "DO"].concat(), ["FIX", "ME"].concat(), ["XX", "X"].concat()];
    file.by_line(|line| {
        let mut words = line.split(|c: char| !c.is_alphanumeric());
        let found = words.find(|word| marks.iter().any(|mark| mark == word))?;
        Some(format!("{found}: do it now, or open an issue"))
    })
}

fn no_tabs(file: &File) -> Violations {
    file.by_line(|line| (file.is(&[".rs"]) && line.contains('\t')).then(|| "a tab".into()))
}

fn clean_ends(file: &File) -> Violations {
    let mut found =
        file.by_line(|line| line.ends_with([' ', '\t']).then(|| "a space at the end".into()));
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        found.push((file.last_line(), "no newline at the end".into()));
    }
    if file.text.ends_with("\n\n") {
        found.push((file.last_line(), "an empty line at the end".into()));
    }
    found
}

fn agreed_licence(file: &File) -> Violations {
    let name = file.path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml"));
    let Some(name) = name else { return Violations::new() };
    let agreed = LICENCES.iter().find(|(crate_name, _)| *crate_name == name);
    let wanted = agreed.map(|(_, licence)| format!("license = \"{licence}\""));
    match wanted {
        Some(wanted) if file.text.lines().any(|line| line == wanted) => Violations::new(),
        Some(wanted) => vec![(1, format!("the agreed licence is not there: {wanted}"))],
        None => vec![(1, "no licence is agreed: add the crate to LICENCES and the README".into())],
    }
}

fn live_links(file: &File) -> Violations {
    let folder = root().join(Path::new(&file.path).parent().unwrap_or(Path::new("")));
    let dead = |target: &&str| {
        let (path, heading) = target.split_once('#').unwrap_or((target, ""));
        let page = match path {
            "" => Some(file.text.clone()),
            _ if heading.is_empty() => folder.join(path).exists().then(String::new),
            _ => fs::read_to_string(folder.join(path)).ok(),
        };
        !page.is_some_and(|page| heading.is_empty() || has_heading(&page, heading))
    };
    file.by_line(|line| {
        let target = if file.is(&[".md"]) { links(line).find(dead)? } else { return None };
        Some(format!("nothing at {target}"))
    })
}

/// Finds files of tests that their crate's `main.rs` does not name, because they would never run.
fn compiled_test(file: &File) -> Violations {
    let Some((folder, name)) = file.path.rsplit_once('/') else { return Vec::new() };
    let module = name.strip_suffix(".rs").filter(|name| *name != "main");
    let Some(module) = module.filter(|_| folder.ends_with("/tests/it")) else { return Vec::new() };
    let main = fs::read_to_string(root().join(folder).join("main.rs")).unwrap_or_default();
    let named = main.lines().any(|line| line == format!("mod {module};"));
    if named { Vec::new() } else { vec![(1, format!("{folder}/main.rs does not name it"))] }
}

/// Returns the relative targets of a line's Markdown links.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://"))
}

/// Returns whether a page has a heading with this anchor. Forges derive anchors from the words.
fn has_heading(page: &str, anchor: &str) -> bool {
    page.lines().filter(|line| line.starts_with('#')).any(|line| {
        let words = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        words.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).eq(anchor.chars())
    })
}
