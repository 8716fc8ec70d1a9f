//! `unspin export`.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use unspin_model::class::{Class, chain};
use unspin_model::{Recording, Session};
use unspin_report::{openmetrics, printable};
use unspin_trace::session::SessionError;
use unspin_trace::totals::Totals;
use unspin_trace::{TraceError, perfetto, recording, session};

use crate::failure::of_class;
use crate::new_file::NewFile;
use crate::out;

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

/// The content of the output file.
enum Content<'a> {
    Session(&'a Session),
    Recordings(&'a [Recording]),
    Text(String),
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let input = read(&args.file)?;
    if let Input::Session(session) = &input {
        if let Some(what) = &session.incomplete {
            let text = format!("unspin: {}: incomplete: {what}", args.file.display());
            note!("{}", printable(&text));
        }
    }
    let (ending, content) = match (args.format, &input) {
        (Format::Perfetto, Input::Session(session)) => ("pftrace", Content::Session(session)),
        (Format::Perfetto, Input::Recordings(recordings)) => {
            ("pftrace", Content::Recordings(recordings))
        }
        (Format::Openmetrics, Input::Session(session)) => {
            ("prom", Content::Text(openmetrics::text(&Totals::of(session))))
        }
        (Format::Csv, Input::Session(session)) => {
            ("csv", Content::Text(unspin_report::csv::session(session)))
        }
        (Format::Csv | Format::Openmetrics, Input::Recordings(_)) => {
            let text = "a host's recording can only become a Perfetto trace: for other formats, \
                        export what `unspin record` wrote";
            return Err(of_class(Class::Usage, text));
        }
    };
    let out = args.out.unwrap_or_else(|| args.file.with_extension(ending));
    let to_stdout = out::is_stdout(&out);
    if to_stdout && args.json {
        let text = "--json and --out - both write to standard output: leave one out";
        return Err(of_class(Class::Usage, text));
    }
    let mut file = if to_stdout { NewFile::stdout() } else { NewFile::create(&out) }?;
    let bytes = match stream(&content, &mut file) {
        Ok(bytes) => bytes,
        // The reader, such as `head`, has closed the pipe.
        Err(error) if to_stdout && error.kind() == ErrorKind::BrokenPipe => {
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => {
            file.discard();
            return Err(error).with_context(|| format!("cannot write {}", out.display()));
        }
    };
    file.finish()?;
    if to_stdout {
        return Ok(ExitCode::SUCCESS);
    }
    let (events, incomplete) = match &input {
        Input::Session(session) => {
            (session.offs.len() + session.spins.len(), session.incomplete.as_ref())
        }
        Input::Recordings(all) => (all.iter().map(|recording| recording.events.len()).sum(), None),
    };
    if args.json {
        let written = serde_json::json!({
            "out": out.to_string_lossy(), "events": events, "bytes": bytes,
            "incomplete": incomplete,
        });
        out::json(1, None, &written)?;
    } else {
        out::line(format_args!("{}: {events} events, {bytes} bytes", out.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the content piece by piece, because a trace can be larger than its input. Returns the
/// number of bytes.
fn stream(content: &Content, out: impl Write) -> io::Result<u64> {
    let mut out = Counted { out: BufWriter::new(out), bytes: 0 };
    let written = match content {
        Content::Session(session) => perfetto::write_session(&mut out, session),
        Content::Recordings(recordings) => perfetto::write(&mut out, recordings),
        Content::Text(text) => out.write_all(text.as_bytes()).map_err(TraceError::Write),
    };
    written.map_err(|error| match error {
        TraceError::Write(source) => source,
        other => io::Error::other(other),
    })?;
    out.flush()?;
    Ok(out.bytes)
}

/// Counts the written bytes.
struct Counted<W> {
    out: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Reads a session or, failing that, a recording. If the file is neither, the error has both
/// reasons.
fn read(file: &Path) -> anyhow::Result<Input> {
    let no_session = match session::read(file) {
        Ok(session) => return Ok(Input::Session(Box::new(session))),
        Err(error @ (SessionError::Open { .. } | SessionError::Empty { .. })) => {
            return Err(error.into());
        }
        // The head is valid, so the file is a damaged session.
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

#[cfg(test)]
mod tests {
    use unspin_model::{VcpuEvent, VcpuState};

    use super::*;

    /// A disk with `room` bytes. It notes the largest piece that it got.
    struct Disk {
        room: usize,
        largest: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.largest = self.largest.max(bytes.len());
            self.room = self.room.checked_sub(bytes.len()).ok_or(ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_trace_is_written_in_pieces() {
        let event = |n: u64| VcpuEvent {
            t_ns: n,
            vcpu: 0,
            state: if n % 2 == 0 { VcpuState::On } else { VcpuState::Off },
        };
        let recording = Recording {
            vm: "subject".into(),
            vcpus: 1,
            start_ns: 0,
            end_ns: 10_000,
            alignment_error_ns: 0,
            lost: 0,
            events: (0..10_000).map(event).collect(),
        };
        let (recordings, mut disk) = ([recording], Disk { room: usize::MAX, largest: 0 });
        let content = Content::Recordings(&recordings);
        let bytes = stream(&content, &mut disk).expect("memory");
        assert_eq!(bytes, (usize::MAX - disk.room) as u64);
        assert!(bytes > 20 * disk.largest as u64, "{bytes} bytes, {} at once", disk.largest);
        let error = stream(&content, Disk { room: 100_000, largest: 0 }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }
}
