//! `unspin report`.

use std::io::stdin;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::bail;
use unspin_model::class::Class;
use unspin_report::session::Made;
use unspin_report::verdict::{Judged, Origin, judge};
use unspin_trace::{digest, session};

use crate::failure::{command_line, of_class, words};
use crate::{here, new_file, out, screen};

/// Summarise a session file: what the guest lost, why, what to do about it
///
/// The session is what `unspin record` wrote. The summary has how long each vCPU was off, and what
/// was burned by spinning, for which causes and in which functions.
#[derive(clap::Args)]
pub struct Args {
    /// What `unspin record` wrote; - is standard input
    session: PathBuf,
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print Markdown
    #[arg(long)]
    markdown: bool,
    /// Also write a page with plots; - writes it to standard output, and nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let to_stdout = args.html.as_deref().is_some_and(out::is_stdout);
    if to_stdout && (args.json || args.markdown) {
        let text = "--html - has standard output to itself: leave out --json and --markdown";
        return Err(of_class(Class::Usage, text));
    }
    let session = match args.session.to_str() {
        Some("-") => session::read_from(stdin().lock(), "standard input")?,
        _ if !args.session.exists() => bail!(
            "{} does not exist; `sudo unspin record --for 10` writes a session",
            args.session.display()
        ),
        _ => session::read(&args.session)?,
    };
    let digest = &digest::digest(&session);
    let hidden: Vec<&str> = session.about.hidden.iter().map(String::as_str).collect();
    let verdict = &judge(digest, Origin::File, &hidden);
    if let Some(out) = &args.html {
        let page = unspin_report::session::page(&made(&args), &session, digest, verdict)?;
        if to_stdout {
            out::text(page)?;
            return Ok(ExitCode::SUCCESS);
        }
        new_file::write(out, page.as_bytes())?;
    }
    if args.json {
        out::json(1, Some(&session.about), &Judged { verdict, digest })?;
    } else if args.markdown {
        out::text(unspin_report::session::document(digest, verdict))?;
    } else {
        out::text(unspin_report::session::text(digest, verdict, screen::columns()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn made(args: &Args) -> Made {
    let written = std::fs::metadata(&args.session).and_then(|about| about.modified());
    Made {
        name: args.session.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        recorded: written.map(here::utc).unwrap_or_default(),
        date: here::utc(SystemTime::now()),
        command: command_line(&words()),
        program: here::PROGRAM.to_owned(),
    }
}
