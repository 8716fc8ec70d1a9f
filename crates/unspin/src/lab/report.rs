//! `unspin lab report`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use unspin_lab::run::Loaded;
use unspin_model::Summary;
use unspin_report::terminal::Style;

use crate::{out, screen};

/// Columns if standard output is not a terminal.
const WIDTH: usize = 100;

/// Summarise an output folder of `unspin lab run`
///
/// It prints a table, and writes summary.json and report.html into the folder. With --json,
/// --markdown or --csv it only prints.
#[derive(clap::Args)]
pub struct Args {
    /// The output folder of `unspin lab run`
    out: PathBuf,
    /// Print the summary as JSON instead
    #[arg(long, conflicts_with_all = ["markdown", "csv"])]
    json: bool,
    /// Print the tables as Markdown instead
    #[arg(long, conflicts_with = "csv")]
    markdown: bool,
    /// Print the single runs as comma-separated values instead
    #[arg(long)]
    csv: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.csv {
        out::bytes(unspin_report::csv::runs(&load(&args.out)?.records).as_bytes())?;
    } else if args.markdown {
        out::text(unspin_report::markdown::document(&summarize(&args.out)?))?;
    } else if args.json {
        print(&summarize(&args.out)?, &args.out, true)?;
    } else {
        print(&write(&args.out)?, &args.out, false)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Summarises an output folder.
pub fn summarize(out: &Path) -> anyhow::Result<Summary> {
    let loaded = load(out)?;
    Ok(unspin_analysis::summarize(
        loaded.info,
        loaded.machine,
        loaded.planned,
        loaded.elapsed_s,
        &loaded.records,
    ))
}

fn load(out: &Path) -> anyhow::Result<Loaded> {
    let loaded = unspin_lab::run::load(out)?;
    for (reason, runs) in &loaded.left_out {
        note!("{}: {runs} runs left out of the report: {reason}", out.display());
    }
    Ok(loaded)
}

/// Writes summary.json and report.html into an output folder.
pub fn write(out: &Path) -> anyhow::Result<Summary> {
    let summary = summarize(out)?;
    let files = [
        ("summary.json", serde_json::to_string_pretty(&summary)? + "\n"),
        ("report.html", unspin_report::html::page(&summary)?),
    ];
    for (name, text) in files {
        let path = out.join(name);
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(summary)
}

/// Prints the table, or the summary as JSON.
pub fn print(summary: &Summary, out: &Path, json: bool) -> anyhow::Result<()> {
    if json {
        // The document has the summary's format, so the summary itself omits it.
        let mut document = serde_json::to_value(summary)?;
        document.as_object_mut().map(|fields| fields.remove("format"));
        return out::json(summary.format, None, &document);
    }
    let style = Style {
        width: screen::columns().unwrap_or(WIDTH),
        colour: screen::colour(),
        report: Some(out.join("report.html").display().to_string()),
    };
    out::text(unspin_report::terminal::table(summary, &style))?;
    Ok(())
}
