//! `unspin claims`.

mod check;
mod derive;
mod file;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use unspin_lab::toml_error;
use unspin_model::Claim;
use unspin_model::class::Class;
use unspin_report::claims::distribution::{self, Distribution};
use unspin_report::claims::plot::{self, Plot};
use unspin_report::claims::{Detail, blocks, terminal};

use self::derive::Gaps;
use crate::failure::of_class;
use crate::lab::report;
use crate::{new_file, out, screen};

/// Columns if standard output is not a terminal.
const WIDTH: usize = 100;

/// List the figures that the project states, each with its target
///
/// A figure meets its target or misses it. One without a target does neither (–).
#[derive(clap::Args)]
pub struct Args {
    /// The file that holds them
    #[arg(long, global = true, default_value = "results/claims.json")]
    file: PathBuf,
    /// Print as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// List the claims (the default)
    List {
        /// Only ids that match, `*` stands for anything
        pattern: Option<String>,
    },
    /// Measure again, and compare with the claims; fails where one is not confirmed
    Check {
        /// Only ids that match, `*` stands for anything
        pattern: Option<String>,
        /// Folder in which each check gets a new folder for its runs
        #[arg(long, default_value = "out/check")]
        out: PathBuf,
    },
    /// Take the claims that output folders support into the file
    ///
    /// Claims of these experiments that the runs give no figure for are named, each with the
    /// reason, and left out.
    Record {
        /// Output folders of `unspin lab run`, or files of claims as JSON that scripts wrote
        #[arg(required = true)]
        sources: Vec<PathBuf>,
        /// Change nothing; fail if a claim is out of date
        #[arg(long)]
        check: bool,
        /// Take folders that lack planned runs, too
        #[arg(long)]
        partial: bool,
    },
    /// Draw the plots of claims, and of the latencies that runs kept
    Plot {
        /// The file that says which
        #[arg(default_value = "results/plots.toml")]
        plots: PathBuf,
        /// Change nothing; fail if a plot is out of date
        #[arg(long)]
        check: bool,
    },
    /// Write the claims' tables into documents, between their markers
    Render {
        /// The documents
        #[arg(required = true)]
        documents: Vec<PathBuf>,
        /// Change nothing; fail if a document is out of date
        #[arg(long)]
        check: bool,
    },
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let load = || file::load(&args.file);
    match args.verb.unwrap_or(Verb::List { pattern: None }) {
        Verb::List { pattern } => list(&load()?, pattern.as_deref(), args.json),
        Verb::Check { pattern, out } => check::run(&load()?, pattern.as_deref(), &out, args.json),
        Verb::Record { sources, check, partial } => {
            let gaps = if partial || check { Gaps::Allowed } else { Gaps::Refused };
            let found = derive::from_all(&sources, gaps)?;
            record(&args.file, found, How { check, json: args.json })
        }
        Verb::Plot { plots, check } => plot(&load()?, &plots, How { check, json: args.json }),
        Verb::Render { documents, check } => {
            render(&load()?, &documents, How { check, json: args.json })
        }
    }
}

fn list(claims: &[Claim], pattern: Option<&str>, json: bool) -> anyhow::Result<ExitCode> {
    let wanted: Vec<&Claim> = match pattern {
        Some(pattern) => matching(claims, pattern)?,
        None => claims.iter().collect(),
    };
    if json {
        out::json_list(1, "claims", &wanted)?;
    } else if !wanted.is_empty() {
        let detail = if pattern.is_some() { Detail::What } else { Detail::Reason };
        out::text(terminal(&wanted, detail, screen::columns().unwrap_or(WIDTH)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the claims whose ids match. No match is an error.
fn matching<'a>(claims: &'a [Claim], pattern: &str) -> anyhow::Result<Vec<&'a Claim>> {
    let matches = |claim: &&Claim| blocks::matches(pattern, &claim.id);
    let found: Vec<&Claim> = claims.iter().filter(matches).collect();
    if found.is_empty() {
        let text = format!("no claim matches `{pattern}`: `unspin claims list` has all of them");
        return Err(of_class(Class::Usage, text));
    }
    Ok(found)
}

fn record(path: &Path, found: Vec<Claim>, how: How) -> anyhow::Result<ExitCode> {
    let old = file::load_or_new(path)?;
    let gone = no_longer_derived(&old, &found);
    for claim in &gone {
        note!("{}: `{}` no longer follows from its runs", path.display(), claim.id);
    }
    if !how.check {
        let replaced = |old: &Claim| found.iter().chain(&gone).any(|new| new.id == old.id);
        let mut claims: Vec<Claim> = old.iter().filter(|old| !replaced(old)).cloned().collect();
        claims.extend(found.iter().cloned());
        claims.sort_by(|a, b| a.id.cmp(&b.id));
        file::save(path, &claims)?;
        return list(&found, None, how.json);
    }
    let mut stale: Vec<Claim> = found.into_iter().filter(|claim| !old.contains(claim)).collect();
    for claim in &stale {
        note!("{}: `{}` is out of date", path.display(), claim.id);
    }
    stale.extend(gone);
    list(&stale, None, how.json)?;
    Ok(if stale.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the old claims that their experiment's runs no longer yield. Only experiments with newly
/// derived claims count.
fn no_longer_derived(old: &[Claim], found: &[Claim]) -> Vec<Claim> {
    let derived = |claim: &&Claim| claim.not_derived.is_empty();
    let of_runs = found.iter().filter(derived);
    let experiments: BTreeSet<&str> = of_runs.map(|claim| claim.experiment.as_str()).collect();
    let gone = |claim: &&Claim| {
        experiments.contains(claim.experiment.as_str())
            && found.iter().all(|new| new.id != claim.id)
    };
    old.iter().filter(derived).filter(gone).cloned().collect()
}

/// The content of a file of plots.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Plots {
    plot: Vec<Plot>,
    #[serde(default)]
    distribution: Vec<Distribution>,
}

fn plot(claims: &[Claim], path: &Path, how: How) -> anyhow::Result<ExitCode> {
    let name = path.display();
    let (plots, _): (Plots, String) = toml_error::load(path)?;
    let mut made = Vec::new();
    for plot in &plots.plot {
        let new = plot::draw(plot, claims).with_context(|| format!("{name}"))?;
        made.push(how.replace(&plot.file, &new)?);
    }
    for plot in &plots.distribution {
        let summary = report::summarize(&plot.results)?;
        let new = distribution::draw(plot, &summary).with_context(|| format!("{name}"))?;
        made.push(how.replace(&plot.file, &new)?);
    }
    how.end(&made, &format!("unspin claims plot {name}"))
}

fn render(claims: &[Claim], documents: &[PathBuf], how: How) -> anyhow::Result<ExitCode> {
    let mut made = Vec::new();
    for path in documents {
        let name = path.display();
        let old = std::fs::read_to_string(path).with_context(|| format!("read {name}"))?;
        let new = blocks::render_blocks(&old, claims).with_context(|| format!("{name}"))?;
        made.push(how.replace(path, &new)?);
    }
    how.end(&made, "unspin claims render README.md docs/*.md results/tables/*.md")
}

/// Options for writing files from claims.
#[derive(Clone, Copy)]
struct How {
    /// Change nothing, and fail if a file is out of date.
    check: bool,
    /// Print the files as JSON.
    json: bool,
}

/// A file that is generated from claims.
#[derive(serde::Serialize)]
struct Made {
    file: PathBuf,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    UpToDate,
    OutOfDate,
    Written,
}

impl How {
    /// Writes the new text to a file, unless the file already has this text or is only checked.
    fn replace(self, path: &Path, new: &str) -> anyhow::Result<Made> {
        let state = if std::fs::read_to_string(path).is_ok_and(|old| old == new) {
            State::UpToDate
        } else if self.check {
            State::OutOfDate
        } else {
            new_file::write(path, new.as_bytes())?;
            State::Written
        };
        Ok(Made { file: path.to_owned(), state })
    }

    fn end(self, made: &[Made], command: &str) -> anyhow::Result<ExitCode> {
        if self.json {
            out::json_list(1, "files", &made)?;
        }
        let mut code = ExitCode::SUCCESS;
        for one in made {
            match one.state {
                State::OutOfDate => {
                    note!("{}: out of date, run `{command}`", one.file.display());
                    code = ExitCode::FAILURE;
                }
                State::Written if !self.json => out::line(one.file.display())?,
                _ => {}
            }
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(id: &str, experiment: &str, not_derived: &str) -> Claim {
        serde_json::from_value(serde_json::json!({
            "id": id, "what": "", "value": 1.0, "lo": null, "hi": null, "n": 10, "unit": "x",
            "target": "", "holds": null, "label": "", "experiment": experiment, "command": "",
            "date": "", "commit": "", "not_derived": not_derived,
        }))
        .expect("a claim")
    }

    #[test]
    fn only_claims_of_the_same_runs_are_dropped() {
        let old = [
            claim("still.there", "a.toml", ""),
            claim("renamed", "a.toml", ""),
            claim("by.hand", "a.toml", "its runs were not kept"),
            claim("elsewhere", "b.toml", ""),
        ];
        let found = [claim("still.there", "a.toml", ""), claim("new", "a.toml", "")];
        assert_eq!(no_longer_derived(&old, &found), [claim("renamed", "a.toml", "")]);
        let by_script = [claim("new", "b.toml", "a script measures it")];
        assert!(no_longer_derived(&old, &by_script).is_empty());
    }
}
