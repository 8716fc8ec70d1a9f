//! `unspin igvm show`.

use std::path::PathBuf;
use std::process::ExitCode;

use unspin_cvm::show::summary;
use unspin_report::igvm;

use super::image;
use crate::out;

/// Show what is in an IGVM file: platforms, memory, registers, digests
///
/// Memory is listed in the order in which a loader adds it. `measured` says what the digest covers:
/// the contents, the address only, or nothing.
#[derive(clap::Args)]
pub struct Args {
    /// The file; - is standard input
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let summary = summary(&image(&args.file)?);
    if args.json {
        out::json(1, None, &summary)?;
    } else {
        out::text(igvm::show(&summary))?;
    }
    Ok(ExitCode::SUCCESS)
}
