//! The command. Verbs are one file each: arguments and printing, nothing else.

mod claims;
mod completions;
mod doctor;
mod explain;
mod export;
mod lab;
mod man;
mod metrics;
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

use clap::{Parser, Subcommand};

/// Find and stop wasted vCPU spinning, from inside the guest.
#[derive(Parser)]
#[command(name = "unspin", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// What this machine is, who helps it against spinning, what can be done
    Doctor(doctor::Args),
    /// Real overcommitted VMs: run experiments, report and compare them
    #[command(subcommand)]
    Lab(lab::Verb),
    /// Every figure that the project states, with its target
    Claims(claims::Args),
    /// Watch this guest's vCPUs being on, off and idle, and what spinning burns
    Watch(watch::Args),
    /// Run the guest scheduler: stop the waste
    Run(run::Args),
    /// Record this guest's off intervals into a session file
    Record(record::Args),
    /// What a session file holds: vCPUs off, spins, why and where
    Report(report::Args),
    /// What a cause of lost time means, how it is recognised, what to do about it
    Explain(explain::Args),
    /// A session or a recording for other tools: Perfetto, OpenMetrics
    Export(export::Args),
    /// A host's trace of KVM exits: pause-loop storms, who spins where
    Trace(trace::Args),
    /// Shell completions
    Completions(completions::Args),
    /// Man pages
    Man(man::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
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
        Verb::Completions(args) => completions::run(args),
        Verb::Man(args) => man::run(args),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("unspin: {}", told(&error));
            exit_code(&error)
        }
    }
}

/// An error and what led to it, each said once.
fn told(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text += &format!(": {cause}");
        }
    }
    text
}

/// 2 for what the user wrote wrongly, 77 for what is missing on this machine, 1 else.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    use unspin_lab::run::LabError;
    use unspin_model::FailureKind;
    if error.is::<unspin_lab::toml_error::ConfigError>() {
        return ExitCode::from(2);
    }
    if error.is::<unspin_guest::sense::SenseError>()
        || error.is::<unspin_guest::run::RunError>()
        || error.is::<unspin_guest::run::socket::AskError>()
    {
        return ExitCode::from(77);
    }
    match error.downcast_ref::<LabError>() {
        Some(LabError::Topology(_)) => ExitCode::from(2),
        Some(LabError::Missing { .. } | LabError::Image(_)) => ExitCode::from(77),
        Some(LabError::Host(failure)) if failure.kind == FailureKind::Unavailable => {
            ExitCode::from(77)
        }
        _ => ExitCode::FAILURE,
    }
}
