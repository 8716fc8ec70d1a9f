//! `unspin igvm check`.

use std::path::PathBuf;
use std::process::ExitCode;

use unspin_cvm::check::{Report, check};
use unspin_cvm::image::Image;
use unspin_report::igvm;

use super::bytes;
use crate::out;

/// Check what a loader, the processor or Linux would refuse in an IGVM file
///
/// An error keeps the guest from loading or starting. A note depends on who loads it.
#[derive(clap::Args)]
pub struct Args {
    /// The file; - is standard input
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let report = match Image::read(&bytes(&args.file)?) {
        Ok(image) => check(&image),
        Err(error) => Report::unreadable(&error),
    };
    if args.json {
        out::json(1, None, &report)?;
    } else {
        out::text(igvm::check(&report))?;
    }
    Ok(if report.errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
