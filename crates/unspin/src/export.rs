//! `unspin export`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

/// Write a run's on/off/idle history as a Perfetto trace: a lane a vCPU.
/// Open it at ui.perfetto.dev, which reads it without sending it anywhere.
#[derive(clap::Args)]
pub struct Args {
    /// A recording, such as OUT/truth/000012.gz
    recording: PathBuf,
    /// Where the trace goes [default: the recording's name with .pftrace]
    #[arg(long, short)]
    out: Option<PathBuf>,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let recordings = unspin_trace::recording::read(&args.recording)?;
    let out = args.out.unwrap_or_else(|| args.recording.with_extension("pftrace"));
    let bytes = unspin_trace::perfetto::to_bytes(&recordings);
    std::fs::write(&out, &bytes).with_context(|| format!("write {}", out.display()))?;
    let events: usize = recordings.iter().map(|recording| recording.events.len()).sum();
    if args.json {
        println!("{}", serde_json::json!({"trace": out, "events": events, "bytes": bytes.len()}));
    } else {
        println!("{}: {events} changes of state", out.display());
    }
    Ok(ExitCode::SUCCESS)
}
