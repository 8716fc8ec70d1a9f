//! `unspin report`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use unspin_trace::{digest, session};

use crate::out;

/// Summarise a session file: time off, spinning, causes and call sites
///
/// The session is what `unspin record` wrote.
#[derive(clap::Args)]
pub struct Args {
    /// What `unspin record` wrote
    session: PathBuf,
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print Markdown
    #[arg(long)]
    markdown: bool,
    /// Also write a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Does it.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let session = session::read(&args.session)?;
    let digest = digest::digest(&session);
    if let Some(out) = &args.html {
        let name = args.session.file_name().unwrap_or_default().to_string_lossy();
        let page = unspin_report::session::page(&name, &session, &digest)?;
        std::fs::write(out, page).with_context(|| format!("write {}", out.display()))?;
    }
    if args.json {
        out::line(serde_json::to_string(&digest)?)?;
    } else if args.markdown {
        out::text(unspin_report::session::document(&digest))?;
    } else {
        out::text(unspin_report::session::text(&digest))?;
    }
    Ok(ExitCode::SUCCESS)
}
