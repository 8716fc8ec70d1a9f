//! Compares the README and the pages of docs/ with the program. The program or the Makefile must
//! accept every command in them, and the program must read every TOML example. Their figures, and
//! those in results/tables/, must match `results/claims.json`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use unspin_lab::experiment::{Experiment, claims};
use unspin_lab::workload::Workload;
use unspin_model::Claim;
use unspin_report::claims::{figure, word};

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

/// Returns the README and the pages of docs/.
fn pages() -> Vec<PathBuf> {
    let mut pages = markdown_in("docs");
    pages.push(root().join("README.md"));
    pages
}

/// Returns the Markdown files of a folder.
fn markdown_in(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).expect("the folder is there").flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|kind| kind == "md"));
    assert!(!files.is_empty(), "{folder}");
    files
}

fn claims() -> Vec<Claim> {
    let text = fs::read_to_string(root().join("results/claims.json")).expect("claims");
    serde_json::from_str(&text).expect("JSON")
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

/// Splits a command into words, without quotes and `>FILE`. The pages use no other shell syntax.
fn words(line: &str) -> Vec<String> {
    let words = line.split_whitespace().filter(|word| !word.starts_with('>'));
    words.map(|word| word.trim_matches('\'').to_owned()).collect()
}

/// Returns what is wrong with a command, if anything.
fn complaint(line: &str) -> Option<String> {
    let words = words(line.strip_prefix("sudo ").unwrap_or(line));
    let (program, args) = words.split_first()?;
    match program.as_str() {
        "make" => {
            let mut make = Command::new("make");
            let output = make.args(args).arg("--dry-run").current_dir(root()).output();
            let output = output.expect("make is installed");
            (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
        }
        "unspin" => match unspin_cli::command().try_get_matches_from(&words) {
            Err(error) if error.use_stderr() => Some(error.to_string()),
            _ => None,
        },
        other => Some(format!("`{other}` is neither make nor unspin")),
    }
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

/// Checks our commands in transcripts and on the pages outside of docs/.
#[test]
fn commands_in_transcripts_and_on_other_pages_are_known() {
    let others = ["CONTRIBUTING.md", "qemu/README.md", "python/README.md"];
    let scripts = others.iter().flat_map(|page| fenced(&root().join(page)));
    let typed = |block: Block| block.lines.into_iter().map(move |line| (block.at.clone(), line));
    let lines = scripts.filter(|block| block.language == "sh").flat_map(typed);
    let shown = blocks("console").into_iter().flat_map(typed).filter_map(|(at, line)| {
        let typed = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# "))?;
        Some((at, typed.to_owned()))
    });
    let ours = |line: &str| {
        let line = line.strip_prefix("sudo ").unwrap_or(line);
        ["unspin ", "make "].iter().any(|program| line.starts_with(program))
    };
    let found: Vec<_> = lines.chain(shown).filter(|(_, line)| ours(line)).collect();
    assert!(found.len() > 6, "{found:?}");
    let wrong = found.iter().filter_map(|(at, line)| Some(format!("{at}: {}", complaint(line)?)));
    assert_eq!(wrong.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_wrong_command_is_noticed() {
    for line in [
        "make no-such-target",
        "unspin lab runs",
        "unspin lab run x --no-flag",
        "rm x",
        // A missing argument and options that exclude each other.
        "unspin lab report",
        "sudo unspin run --status --stats 1",
        "unspin claims check --json x y",
    ] {
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
fn the_citation_names_this_version() {
    let citation = fs::read_to_string(root().join("CITATION.cff")).expect("a citation");
    let version = format!("version: {}", env!("CARGO_PKG_VERSION"));
    assert!(citation.lines().any(|line| line == version), "CITATION.cff: write `{version}`");
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

/// Compares the tables and plots of README, docs/ and results/tables/ with `results/claims.json`.
#[test]
fn tables_and_plots_match_the_claims() {
    let check = |what: &str, pages: &[PathBuf]| {
        let mut unspin = Command::new(env!("CARGO_BIN_EXE_unspin"));
        unspin.current_dir(root()).args(["claims", what, "--check"]).args(pages);
        let checked = unspin.output().expect("start unspin");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    };
    check("render", &[pages(), markdown_in("results/tables")].concat());
    check("plot", &[]);
}

/// Checks the rows that end with a claim's id. Such a row repeats the claim's figure, target and
/// result, and the caption above the table has its label. Returns the ids and the errors.
fn rows(page: &str, claims: &[Claim]) -> (Vec<String>, Vec<String>) {
    let (mut ids, mut wrong) = (Vec::new(), Vec::new());
    let mut caption = "";
    for line in page.lines() {
        if let Some(label) = line.strip_prefix("*Label: ") {
            caption = label.trim_end_matches('*');
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, value, target, result, id] = cells[..] else { continue };
        let Some(id) = id.strip_prefix('`').and_then(|id| id.strip_suffix('`')) else { continue };
        let Some(claim) = claims.iter().find(|claim| claim.id == id) else {
            wrong.push(format!("no claim is named `{id}`"));
            continue;
        };
        let stated = [value, target, result.trim_matches('*'), caption];
        let expected = [&figure(claim), &claim.target, word(claim.holds), &claim.label];
        if stated != expected {
            wrong.push(format!("`{id}`: {stated:?} should be {expected:?}"));
        }
        ids.push(id.to_owned());
    }
    (ids, wrong)
}

/// Checks figures that a claim's id in brackets follows: `FIGURE (`ID`)`. Returns the errors.
fn figures_before_ids(page: &str, claims: &[Claim]) -> Vec<String> {
    let mut wrong = Vec::new();
    for line in page.lines() {
        for (at, _) in line.match_indices("(`") {
            let id = line[at + 2..].split('`').next().unwrap_or_default();
            let Some(claim) = claims.iter().find(|claim| claim.id == id) else { continue };
            if !line[..at].trim_end().ends_with(&figure(claim)) {
                wrong.push(format!("write {} before (`{id}`)", figure(claim)));
            }
        }
    }
    wrong
}

/// Parses the last cell of a row such as `| ... | 2 of 3 |`.
fn missed_of_targets(row: &str) -> Option<(usize, usize)> {
    let (missed, of) = row.trim_end_matches([' ', '|']).rsplit('|').next()?.split_once(" of ")?;
    Some((missed.trim().parse().ok()?, of.trim().parse().ok()?))
}

#[test]
fn rows_repeat_their_claims_and_none_of_the_missed_is_left_out() {
    let claims = claims();
    let (mut shown, mut wrong) = (Vec::new(), Vec::new());
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page is text");
        let (ids, errors) = rows(&text, &claims);
        shown.extend(ids);
        let errors = [errors, figures_before_ids(&text, &claims)].concat();
        wrong.extend(errors.iter().map(|error| format!("{}: {error}", page.display())));
    }
    let missed = claims.iter().filter(|claim| claim.holds == Some(false));
    let left_out = missed.clone().filter(|claim| !shown.contains(&claim.id));
    wrong.extend(left_out.map(|claim| format!("no page of docs/ has the missed `{}`", claim.id)));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let results = fs::read_to_string(root().join("docs/results.md")).expect("a page is text");
    let targets = claims.iter().filter(|claim| claim.holds.is_some()).count();
    let sums = format!("Of {targets} targets, {} are missed.", missed.clone().count());
    assert!(results.contains(&sums), "docs/results.md: write \"{sums}\"");
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md");
    let counted = format!("{} of {targets} targets", missed.clone().count());
    assert!(readme.contains(&counted), "README.md does not say: {counted}");
    let pages = results.lines().filter_map(missed_of_targets);
    let sums = pages.fold((0, 0), |sums, (missed, of)| (sums.0 + missed, sums.1 + of));
    assert_eq!(sums, (missed.count(), targets), "docs/results.md: the last column's sums");
}

#[test]
fn a_row_that_differs_from_its_claim_is_noticed() {
    let claims = claims();
    let claim = claims.iter().find(|claim| claim.holds == Some(false)).expect("one is missed");
    let Claim { id, target, label, .. } = claim;
    let row = |figure: &str, target: &str, result: &str, label: &str, id: &str| {
        format!("*Label: {label}*\n\n| speed | {figure} | {target} | {result} | `{id}` |\n")
    };
    let figure = figure(claim);
    let right = row(&figure, target, "**missed**", label, id);
    assert_eq!(rows(&right, &claims), (vec![id.clone()], Vec::new()));
    assert_eq!(figures_before_ids(&format!("It is {figure} (`{id}`)."), &claims), [""; 0]);
    assert_eq!(figures_before_ids(&format!("It is 1.00x (`{id}`)."), &claims).len(), 1);
    for wrong in [
        row("1.00x", target, "**missed**", label, id),
        row(&figure, ">= 0", "**missed**", label, id),
        row(&figure, target, "met", label, id),
        row(&figure, target, "**missed**", "hardware", id),
        row(&figure, target, "**missed**", label, "no.such.claim"),
    ] {
        assert_eq!(rows(&wrong, &claims).1.len(), 1, "{wrong}");
    }
}

/// Checks that each claim names an existing experiment, so that readers can repeat its measurement.
#[test]
fn claims_name_experiments_that_are_here() {
    let claims = claims();
    assert!(!claims.is_empty());
    for claim in claims {
        let experiment = Path::new(&claim.experiment);
        let is_here = experiment.is_relative() && root().join(experiment).is_file();
        assert!(is_here, "{}: {}", claim.id, experiment.display());
    }
}
