//! `unspin igvm diff`.

use std::path::PathBuf;
use std::process::ExitCode;

use unspin_cvm::diff::differences;
use unspin_report::igvm;

use super::image;
use crate::out;

/// Compare two IGVM files: headers, registers, memory, digests
#[derive(clap::Args)]
pub struct Args {
    /// The first file
    a: PathBuf,
    /// The second file
    b: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let found = differences(&image(&args.a)?, &image(&args.b)?);
    if args.json {
        out::json(1, None, &found)?;
    } else {
        out::text(igvm::diff(&found))?;
    }
    Ok(if found.same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
