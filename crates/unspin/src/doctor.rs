//! `unspin doctor`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use unspin_guest::doctor;
use unspin_guest::machine::Facts;

use crate::out;

/// Show what this machine is, and what unspin can do on it
///
/// Covered are the kind of confidential VM, the hypervisor, its help against spinning, the kernel's
/// spinlocks, and what each verb of unspin needs. It changes nothing, and finds more as root.
#[derive(clap::Args)]
pub struct Args {
    /// Print what was read, instead of what it means: to be judged elsewhere with --from
    #[arg(long, conflicts_with = "json")]
    facts: bool,
    /// Judge another machine, from what its --facts printed
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let facts = match &args.from {
        None => Facts::probe(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("read {}", path.display()))?;
            serde_json::from_str(&text).with_context(|| {
                format!("{}: not what `unspin doctor --facts` prints", path.display())
            })?
        }
    };
    let diagnosis = doctor::diagnose(&facts);
    if args.facts {
        out::line(serde_json::to_string_pretty(&facts)?)?;
    } else if args.json {
        out::json(1, None, &diagnosis)?;
    } else {
        out::text(unspin_report::doctor::text(&diagnosis))?;
    }
    Ok(ExitCode::SUCCESS)
}
