//! `unspin lab`.

mod compare;
mod fuzz;
pub mod help;
mod kernel;
mod list;
mod qemu;
pub mod report;
pub mod run;
mod watched;

use std::process::ExitCode;

use clap::Subcommand;
use unspin_lab::image::COMMIT_MARK;
use unspin_lab::run::Options;

/// Run experiments on real, overcommitted VMs, report and compare them
#[derive(Subcommand)]
pub enum Verb {
    List(list::Args),
    Run(run::Args),
    Report(report::Args),
    Compare(compare::Args),
    Fuzz(fuzz::Args),
    #[command(subcommand)]
    Kernel(kernel::Verb),
    #[command(subcommand)]
    Qemu(qemu::Verb),
}

pub fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::List(args) => list::run(&args),
        Verb::Run(args) => run::run(args),
        Verb::Report(args) => report::run(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::Fuzz(args) => fuzz::run(args),
        Verb::Kernel(verb) => kernel::run(verb),
        Verb::Qemu(verb) => qemu::run(verb),
    }
}

/// The commit, after a mark. The lab searches for the mark and blanks the commit in the guests'
/// copy of this program. `black_box` keeps the bytes in one piece, because the compiler could
/// otherwise fold them into code.
#[used]
static BUILT_FROM: &str = concat!("unspin commit ", env!("UNSPIN_COMMIT"));

/// Returns the options of a run by this program.
pub fn options() -> Options {
    let mark_and_commit = std::hint::black_box(BUILT_FROM);
    let commit = mark_and_commit.trim_start_matches(COMMIT_MARK).trim_end_matches('.');
    Options { commit: commit.to_owned(), ..Options::default() }
}
