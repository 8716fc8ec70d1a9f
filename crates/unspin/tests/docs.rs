//! The README and the pages of docs/ against the program: every command in them must be
//! one that the program or the Makefile knows, every TOML example one that it reads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use unspin_lab::experiment::{Experiment, claims};
use unspin_lab::workload::Workload;

/// A fenced block of a page.
struct Block {
    /// `page:line` of its first line.
    at: String,
    language: String,
    lines: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The README and the pages of docs/.
fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).expect("docs/ is there");
    let mut pages: Vec<PathBuf> = docs.flatten().map(|entry| entry.path()).collect();
    pages.retain(|page| page.extension().is_some_and(|kind| kind == "md"));
    pages.push(root().join("README.md"));
    pages
}

fn blocks(language: &str) -> Vec<Block> {
    pages().iter().flat_map(|page| fenced(page)).filter(|b| b.language == language).collect()
}

fn fenced(page: &Path) -> Vec<Block> {
    let text = fs::read_to_string(page).expect("a page is text");
    let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut done = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(_), Some(block)) => done.push(block),
            (Some(language), None) => {
                let at = format!("{name}:{}", index + 2);
                open = Some(Block { at, language: language.to_owned(), lines: Vec::new() });
            }
            (None, Some(mut block)) => {
                block.lines.push(line.to_owned());
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{name}: a block is not closed");
    done
}

/// The words of a command, quotes taken off; the pages need no more of the shell.
fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(|word| word.trim_matches('\'').to_owned()).collect()
}

/// What is wrong with a command, if something is.
fn complaint(line: &str) -> Option<String> {
    let words = words(line.strip_prefix("sudo ").unwrap_or(line));
    let (program, args) = words.split_first()?;
    // What stands behind `--` is another program's.
    let args = args.split(|word| word == "--").next()?;
    let mut command = match program.as_str() {
        "make" => Command::new("make"),
        "unspin" => Command::new(env!("CARGO_BIN_EXE_unspin")),
        other => return Some(format!("`{other}` is neither make nor unspin")),
    };
    // make only says what it would do. unspin reads its arguments from left to right, so
    // a wrong one is refused before `--help` counts.
    let harmless = if program == "make" { "--dry-run" } else { "--help" };
    let output = command.args(args).arg(harmless).current_dir(root()).output();
    let output = output.expect("the program is there");
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn commands_are_known() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for block in blocks("sh") {
        for line in &block.lines {
            count += 1;
            if let Some(what) = complaint(line) {
                wrong.push(format!("{}: {line}: {what}", block.at));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 20, "only {count} commands were found: is this test still reading the pages?");
}

#[test]
fn a_wrong_command_is_noticed() {
    for line in ["make no-such-target", "unspin lab runs", "unspin lab run x --no-flag", "rm x"] {
        assert!(complaint(line).is_some(), "{line}");
    }
}

#[test]
fn experiments_that_are_named_are_shipped() {
    for line in blocks("sh").iter().flat_map(|block| &block.lines) {
        if let ["unspin", "lab", "run", name, ..] = line.split(' ').collect::<Vec<_>>()[..] {
            let own = name.ends_with(".toml") || name.starts_with("--");
            assert!(own || Experiment::builtin_names().any(|shipped| shipped == name), "{line}");
        }
    }
}

#[test]
fn examples_are_read() {
    let examples = blocks("toml");
    assert!(examples.len() > 5, "only {} examples were found", examples.len());
    for block in examples {
        let text = block.lines.join("\n") + "\n";
        let path = Path::new(&block.at);
        let error = match block.lines.first().map(|line| line.split(':').next().unwrap_or("")) {
            Some("# experiment") => Experiment::parse(path, &text).err(),
            Some("# workload") => Workload::parse(path, &text).err(),
            Some("# claims") => claims::parse(path, &text).err(),
            first => panic!("{}: says {first:?}, not what kind of file it is", block.at),
        };
        assert!(
            error.is_none(),
            "{}: {}",
            block.at,
            error.map(|e| e.to_string()).unwrap_or_default()
        );
    }
}

#[test]
fn the_services_start_known_commands() {
    let options = [
        ("$UNSPIN_RUN_OPTIONS", "--listen 127.0.0.1:9470"),
        ("${UNSPIN_WATCH_LISTEN}", "127.0.0.1:9469"),
        ("$UNSPIN_WATCH_OPTIONS", "--causes"),
    ];
    for name in ["unspin", "unspin-watch"] {
        let path = root().join(format!("packaging/systemd/{name}.service.in"));
        let unit = fs::read_to_string(path).expect("a unit");
        let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=@PREFIX@/bin/"));
        let line = start.expect("a command").to_owned();
        let line = options.iter().fold(line, |line, (name, value)| line.replace(name, value));
        assert!(!line.contains('$'), "{name}: {line}");
        assert_eq!(complaint(&line), None, "{name}: {line}");
    }
}

/// The tables and plots of README and docs are what `results/claims.json` says.
#[test]
fn tables_and_plots_match_the_claims() {
    let check = |what: &str, pages: &[PathBuf]| {
        let mut unspin = Command::new(env!("CARGO_BIN_EXE_unspin"));
        unspin.current_dir(root()).args(["claims", what, "--check"]).args(pages);
        let checked = unspin.output().expect("start unspin");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    };
    check("render", &pages());
    check("plot", &[]);
}

/// Whoever doubts a claim finds here what measured it.
#[test]
fn claims_name_experiments_that_are_here() {
    let text = fs::read_to_string(root().join("results/claims.json")).expect("claims");
    let claims: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let claims = claims.as_array().expect("a list");
    assert!(!claims.is_empty());
    for claim in claims {
        let experiment = Path::new(claim["experiment"].as_str().expect("a path"));
        let is_here = experiment.is_relative() && root().join(experiment).is_file();
        assert!(is_here, "{}: {}", claim["id"], experiment.display());
    }
}
