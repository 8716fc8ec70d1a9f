//! `unspin lab`.

mod run;

use std::process::ExitCode;

use clap::Subcommand;

/// What the lab does.
#[derive(Subcommand)]
pub enum Verb {
    /// Run an experiment, or go on with one
    Run(run::Args),
}

/// Does it.
pub fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Run(args) => run::run(args),
    }
}
