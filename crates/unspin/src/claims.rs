//! `unspin claims`.

mod check;
mod file;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Subcommand;
use unspin_lab::experiment::Experiment;
use unspin_model::{Claim, Target};
use unspin_report::claims::plot::{self, Plot};
use unspin_report::claims::{blocks, terminal};
use unspin_report::evaluate::{Origin, evaluate};

use crate::lab::report;
use crate::out;

const WIDTH: usize = 100;

/// Every figure that the project states, and whether it still holds.
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
    /// Measure again, and say which claims still hold
    Check {
        /// Only ids that match, `*` stands for anything
        pattern: Option<String>,
        /// Where the runs go
        #[arg(long, default_value = "out/check")]
        out: PathBuf,
    },
    /// Take the claims that an experiment's output folder supports into the file
    Record {
        /// The output folder of `unspin lab run`, or a file of claims as JSON, for what is not
        /// measured by an experiment
        out: PathBuf,
    },
    /// Draw the plots of claims
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

/// Does it.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.verb.unwrap_or(Verb::List { pattern: None }) {
        Verb::List { pattern } => list(&file::load(&args.file)?, pattern.as_deref(), args.json),
        Verb::Check { pattern, out } => {
            check::run(&file::load(&args.file)?, pattern.as_deref(), &out, args.json)
        }
        Verb::Record { out } => record(&args.file, &out, args.json),
        Verb::Plot { plots, check } => plot(&file::load(&args.file)?, &plots, check),
        Verb::Render { documents, check } => render(&file::load(&args.file)?, &documents, check),
    }
}

fn list(claims: &[Claim], pattern: Option<&str>, json: bool) -> anyhow::Result<ExitCode> {
    let wanted: Vec<&Claim> = select(claims, pattern);
    if json {
        out::line(serde_json::to_string_pretty(&wanted)?)?;
    } else {
        out::text(terminal(&wanted, WIDTH))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn select<'a>(claims: &'a [Claim], pattern: Option<&str>) -> Vec<&'a Claim> {
    let pattern = pattern.unwrap_or("*");
    claims.iter().filter(|claim| blocks::matches(pattern, &claim.id)).collect()
}

fn record(path: &Path, out: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let found = if out.is_dir() { supported(out)? } else { measured(out)? };
    if found.is_empty() {
        bail!("{}: no claims; an experiment has them as [[claim]]", out.display());
    }
    let mut claims = file::load(path)?;
    for claim in &found {
        claims.retain(|old| old.id != claim.id);
        claims.push(claim.clone());
    }
    claims.sort_by(|a, b| a.id.cmp(&b.id));
    file::save(path, &claims)?;
    list(&found, None, json)
}

/// The claims of a file. Whether they hold is not for who measured them to say.
fn measured(path: &Path) -> anyhow::Result<Vec<Claim>> {
    if !path.exists() {
        bail!("{}: no such folder or file", path.display());
    }
    let mut claims = file::load(path)?;
    for claim in &mut claims {
        let target = claim.target.parse::<Target>().ok();
        claim.holds = target.is_none_or(|t| claim.value.is_some_and(|value| t.met_by(value)));
        if claim.holds {
            claim.reason.clear();
        }
    }
    Ok(claims)
}

/// The claims that an output folder supports.
fn supported(out: &Path) -> anyhow::Result<Vec<Claim>> {
    let summary = report::write(out)?;
    let loaded = unspin_lab::run::load(out)?;
    let experiment = Experiment::load(&loaded.file.display().to_string())?;
    let origin = Origin {
        experiment: loaded.file.display().to_string(),
        command: format!("make experiment NAME={}", experiment.name),
        date: last_day(out)?,
    };
    Ok(evaluate(&experiment.claims, &summary, &origin))
}

/// The day of the last run, YYYY-MM-DD.
fn last_day(out: &Path) -> anyhow::Result<String> {
    let records = unspin_lab::run::load(out)?.records;
    let last = records.iter().map(|record| record.started.as_str()).max();
    let day = last.and_then(|started| started.get(..10)).context("the folder has no runs")?;
    Ok(day.to_owned())
}

/// A file of plots.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Plots {
    plot: Vec<Plot>,
}

fn plot(claims: &[Claim], path: &Path, check: bool) -> anyhow::Result<ExitCode> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("read {name}"))?;
    let plots: Plots = toml::from_str(&text).with_context(|| format!("{name}"))?;
    let mut stale = false;
    for plot in &plots.plot {
        let new = plot::draw(plot, claims).with_context(|| format!("{name}"))?;
        let how = format!("unspin claims plot {name}");
        stale |= replace(&plot.file, &new, check, &how)?;
    }
    Ok(if stale && check { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn render(claims: &[Claim], documents: &[PathBuf], check: bool) -> anyhow::Result<ExitCode> {
    let mut stale = false;
    for path in documents {
        let name = path.display();
        let old = std::fs::read_to_string(path).with_context(|| format!("read {name}"))?;
        let new = blocks::render_blocks(&old, claims).with_context(|| format!("{name}"))?;
        stale |= replace(path, &new, check, &format!("unspin claims render {name}"))?;
    }
    Ok(if stale && check { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Gives a file its new text, or says only that it has another. Whether it had.
fn replace(path: &Path, new: &str, check: bool, how: &str) -> anyhow::Result<bool> {
    let name = path.display();
    if std::fs::read_to_string(path).is_ok_and(|old| old == new) {
        return Ok(false);
    }
    if check {
        eprintln!("{name}: out of date, run `{how}`");
    } else {
        std::fs::write(path, new).with_context(|| format!("write {name}"))?;
        out::line(name)?;
    }
    Ok(true)
}
