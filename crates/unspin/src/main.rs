//! The command. Verbs are one file each: arguments and printing, nothing else.

mod lab;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Find and stop wasted vCPU spinning, from inside the guest.
#[derive(Parser)]
#[command(name = "unspin", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Real overcommitted VMs: run experiments, report and compare them
    #[command(subcommand)]
    Lab(lab::Verb),
}

fn main() -> ExitCode {
    if unspin_lab::init::is_init() {
        unspin_lab::init::main();
    }
    let done = match Cli::parse().verb {
        Verb::Lab(verb) => lab::run(verb),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("unspin: {error:#}");
            ExitCode::FAILURE
        }
    }
}
