//! `spinbench`: measures a lock's throughput, fairness and waits when vCPUs are overcommitted.
//!
//! Threads take one lock, work inside it, work outside it, and count. The output has operations per
//! second, each thread's share, and the time that acquisitions took.

mod args;
mod bench;
mod locks;
mod report;
mod signals;
mod work;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

fn main() -> ExitCode {
    let args = args::Args::parse();
    // The mask is set before any thread starts, so that all of them inherit it.
    signals::block();
    let plan = args.plan();
    let limit = (!args.until_stopped).then(|| Duration::from_secs_f64(args.seconds));
    let mut interrupted = false;
    let measured = match bench::run(args.lock, &plan, || interrupted = signals::wait(limit)) {
        Ok(measured) => measured,
        Err(error) => {
            eprintln!("spinbench: cannot start {} threads: {error}", plan.threads);
            return ExitCode::FAILURE;
        }
    };
    let report = report::Report::new(&args, &plan, &measured, interrupted);
    print!("{}", if args.json { report.json() } else { report.text() });
    match report.lost_updates {
        0 => ExitCode::SUCCESS,
        lost => {
            eprintln!("spinbench: {} lost {lost} updates: it does not exclude", report.lock);
            ExitCode::FAILURE
        }
    }
}
