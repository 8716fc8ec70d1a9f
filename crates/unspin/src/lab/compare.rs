//! `unspin lab compare`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::report;
use crate::{out, screen};

/// Columns if standard output is not a terminal.
const WIDTH: usize = 100;

/// Compare the cells of two output folders: B against A
#[derive(clap::Args)]
pub struct Args {
    /// The baseline's output folder
    a: PathBuf,
    /// The other one
    b: PathBuf,
    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (a, b) = (report::summarize(&args.a)?, report::summarize(&args.b)?);
    let compared = unspin_analysis::compare::compare(&a, &b);
    if args.json {
        out::json(1, None, &compared)?;
    } else {
        let width = screen::columns().unwrap_or(WIDTH);
        out::text(unspin_report::compare::terminal(&compared, width))?;
    }
    Ok(ExitCode::SUCCESS)
}
