//! `unspin man`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;

/// Write man pages, one a verb.
#[derive(clap::Args)]
pub struct Args {
    /// The folder to write them to
    folder: PathBuf,
}

/// Does it.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    clap_mangen::generate_to(crate::Cli::command(), folder)
        .with_context(|| format!("write to {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
