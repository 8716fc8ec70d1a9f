//! The `unspin` program. Each verb has a file with only its arguments and its printing.
//!
//! This is a library so that tests can parse command lines as the program does.

/// Prints on standard error, like `note!`, without a newline.
macro_rules! show {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stderr(), $($words)*);
    }};
}

/// Prints a line on standard error. If the reader has closed the pipe, as after `2>&1 | head`, the
/// line is lost and the program goes on.
macro_rules! note {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

mod claims;
mod command;
mod completions;
mod doctor;
mod explain;
mod export;
mod failure;
mod help;
mod here;
mod igvm;
mod lab;
mod man;
mod metrics;
mod new_file;
mod out;
mod record;
mod report;
mod run;
mod screen;
mod sensing;
mod span;
mod trace;
mod watch;

use std::process::ExitCode;

use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};

/// Find and stop wasted vCPU spinning, from inside the guest.
///
/// unspin shows how long the hypervisor keeps vCPUs off their pCPUs, and how much CPU time the
/// others burn meanwhile by spinning. It stops the waste by limiting tasks to fewer vCPUs. It needs
/// neither steal time nor the hypervisor's help. Start with `unspin doctor`.
#[derive(Parser)]
#[command(name = "unspin", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

// Each verb's own type has its help. A doc comment on a variant would replace that help.
#[derive(Subcommand)]
enum Verb {
    Doctor(doctor::Args),
    Watch(watch::Args),
    Run(run::Args),
    Record(record::Args),
    Report(report::Args),
    Explain(explain::Args),
    Export(export::Args),
    Trace(trace::Args),
    #[command(subcommand)]
    Igvm(igvm::Verb),
    #[command(subcommand)]
    Lab(lab::Verb),
    Claims(claims::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// Returns the whole command line, with the examples of each verb.
pub fn command() -> Command {
    help::complete(Cli::command())
}

/// Runs the verb of the command line.
pub fn main() -> ExitCode {
    let matches = command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match run(cli.verb) {
        Ok(code) => code,
        Err(error) => {
            note!("unspin: {}", failure::message(&error, &failure::words()));
            failure::class(&error).exit_status().into()
        }
    }
}

fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Doctor(args) => doctor::run(args),
        Verb::Lab(verb) => lab::run(verb),
        Verb::Claims(args) => claims::run(args),
        Verb::Watch(args) => watch::run(args),
        Verb::Run(args) => run::run(args),
        Verb::Record(args) => record::run(args),
        Verb::Report(args) => report::run(args),
        Verb::Explain(args) => explain::run(args),
        Verb::Export(args) => export::run(args),
        Verb::Trace(args) => trace::run(args),
        Verb::Igvm(verb) => igvm::run(verb),
        Verb::Completions(args) => completions::run(args),
        Verb::Man(args) => man::run(args),
    }
}
