//! `unspin completions`.

use std::process::ExitCode;

use clap_complete::Shell;

use crate::out;

/// Print completions for a shell
#[derive(clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Does it.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut command = crate::command();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "unspin", &mut script);
    out::text(String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
