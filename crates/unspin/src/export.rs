//! `unspin export`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use unspin_model::class::{Class, chain};
use unspin_model::{Recording, Session};
use unspin_report::openmetrics;
use unspin_trace::session::SessionError;
use unspin_trace::totals::Totals;
use unspin_trace::{perfetto, recording, session};

use crate::failure::of_class;
use crate::{new_file, out};

/// Convert a session or a recording for other tools: Perfetto, CSV, OpenMetrics
///
/// A Perfetto trace has a lane per vCPU. Open it at https://ui.perfetto.dev, which reads it in the
/// browser and uploads nothing.
#[derive(clap::Args)]
pub struct Args {
    /// Session file of `unspin record`, or a host's recording such as OUT/truth/RUN-IDENTITY.gz
    file: PathBuf,
    /// Output file; - is standard output [default: the file's name with .pftrace, .csv or .prom]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Perfetto)]
    format: Format,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// A trace for the Perfetto viewer
    Perfetto,
    /// A row per off interval and per spin with its cause, of a session
    Csv,
    /// Sums as OpenMetrics text, of a session
    Openmetrics,
}

enum Input {
    Session(Box<Session>),
    Recordings(Vec<Recording>),
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let input = read(&args.file)?;
    if let Input::Session(session) = &input {
        if let Some(what) = &session.incomplete {
            note!("unspin: {}: incomplete: {what}", args.file.display());
        }
    }
    let (ending, bytes) = match (args.format, &input) {
        (Format::Perfetto, Input::Session(session)) => {
            let mut bytes = Vec::new();
            perfetto::write_session(&mut bytes, session)?;
            ("pftrace", bytes)
        }
        (Format::Perfetto, Input::Recordings(recordings)) => {
            let mut bytes = Vec::new();
            perfetto::write(&mut bytes, recordings)?;
            ("pftrace", bytes)
        }
        (Format::Openmetrics, Input::Session(session)) => {
            ("prom", openmetrics::text(&Totals::of(session)).into_bytes())
        }
        (Format::Csv, Input::Session(session)) => {
            ("csv", unspin_report::csv::session(session).into_bytes())
        }
        (Format::Csv | Format::Openmetrics, Input::Recordings(_)) => {
            let text = "a host's recording can only become a Perfetto trace: for other formats, \
                        export what `unspin record` wrote";
            return Err(of_class(Class::Usage, text));
        }
    };
    let out = args.out.unwrap_or_else(|| args.file.with_extension(ending));
    if out == Path::new("-") {
        if args.json {
            let text = "--json and --out - both write to standard output: leave one out";
            return Err(of_class(Class::Usage, text));
        }
        out::bytes(&bytes)?;
        return Ok(ExitCode::SUCCESS);
    }
    new_file::write(&out, &bytes)?;
    let (events, incomplete) = match input {
        Input::Session(session) => (session.offs.len() + session.spins.len(), session.incomplete),
        Input::Recordings(all) => (all.iter().map(|recording| recording.events.len()).sum(), None),
    };
    if args.json {
        let bytes = bytes.len();
        let written = serde_json::json!({
            "out": out.to_string_lossy(), "events": events, "bytes": bytes, "incomplete": incomplete,
        });
        out::json(1, None, &written)?;
    } else {
        out::line(format_args!("{}: {events} events, {} bytes", out.display(), bytes.len()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is not a session may be a recording; where it is neither, both say why.
fn read(file: &Path) -> anyhow::Result<Input> {
    let no_session = match session::read(file) {
        Ok(session) => return Ok(Input::Session(Box::new(session))),
        Err(error @ (SessionError::Open { .. } | SessionError::Empty { .. })) => {
            return Err(error.into());
        }
        // The head is that of a session.
        Err(error @ SessionError::Damaged { batch: 1.., .. }) => return Err(error.into()),
        Err(error) => error,
    };
    match recording::read(file) {
        Ok(recordings) if recordings.is_empty() => bail!("{}: the file is empty", file.display()),
        Ok(recordings) => Ok(Input::Recordings(recordings)),
        Err(no_recording) => {
            bail!("{no_session}; it is not a recording either: {}", chain(&no_recording))
        }
    }
}
