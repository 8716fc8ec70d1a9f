//! `unspin doctor`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use unspin_guest::doctor;
use unspin_guest::machine::Facts;

use crate::{out, screen};

/// Columns if the output is not a terminal.
const COLUMNS: usize = 80;
/// Maximum columns, because longer lines are hard to read.
const COLUMNS_MAX: usize = 120;

/// Show what this machine is, and which verbs of unspin work on it
///
/// Covered are the kind of confidential VM, the hypervisor, its help against spinning, the kernel's
/// spinlocks, why a verb does not work, and, where `run` has neither cpusets nor sched_ext, how to
/// get a kernel with sched_ext. As root, it attaches for a moment what each verb attaches. It
/// changes nothing.
#[derive(clap::Args)]
pub struct Args {
    /// Print what was read as JSON, without judging it: for --from on another machine
    #[arg(long, conflicts_with = "json")]
    facts: bool,
    /// Judge another machine, from what its --facts printed
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let facts = match &args.from {
        None => Facts::probe_and_try(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("read {}", path.display()))?;
            serde_json::from_str(&text).with_context(|| {
                format!("{}: not what `unspin doctor --facts` prints", path.display())
            })?
        }
    };
    let diagnosis = doctor::diagnose(&facts);
    let columns = screen::columns().unwrap_or(COLUMNS).min(COLUMNS_MAX);
    if args.facts {
        out::line(serde_json::to_string_pretty(&facts)?)?;
    } else if args.json {
        out::json(1, None, &diagnosis)?;
    } else {
        out::text(unspin_report::doctor::text(&diagnosis, columns))?;
    }
    Ok(ExitCode::SUCCESS)
}
