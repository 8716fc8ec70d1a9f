//! `unspin completions`.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

/// Print completions for a shell.
#[derive(clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Does it.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut command = crate::Cli::command();
    clap_complete::generate(args.shell, &mut command, "unspin", &mut std::io::stdout());
    Ok(ExitCode::SUCCESS)
}
