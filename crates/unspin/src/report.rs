//! `unspin report`.

use std::path::PathBuf;
use std::process::ExitCode;

use unspin_trace::{digest, session};

/// Say what a session file holds: how long each vCPU was off, what was burned by spinning,
/// why and where.
#[derive(clap::Args)]
pub struct Args {
    /// What `unspin record` wrote
    session: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let digest = digest::digest(&session::read(&args.session)?);
    if args.json {
        println!("{}", serde_json::to_string(&digest)?);
    } else {
        print!("{}", unspin_report::session::text(&digest));
    }
    Ok(ExitCode::SUCCESS)
}
