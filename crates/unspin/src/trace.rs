//! `unspin trace`.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use unspin_trace::storms::{self, Limits, Symbols};

use crate::out;

/// Find pause-loop storms in a host's trace of KVM exits
///
/// In a storm, a vCPU leaves the guest by PAUSE again and again at one address, because the vCPU
/// that it waits for does not run.
///
/// Trace on the host, as root:
///   perf record -a -e kvm:kvm_exit,kvm:kvm_entry -- sleep 10
///   perf script --show-lost-events > trace.txt
/// or
///   trace-cmd record -e kvm:kvm_exit -e kvm:kvm_entry sleep 10; trace-cmd report > trace.txt
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The trace: text of perf script, trace-cmd report or tracefs, also gzipped; - is standard
    /// input
    file: PathBuf,
    /// /proc/kallsyms of the guest, as root read it, to name functions
    #[arg(long, value_name = "FILE")]
    kallsyms: Option<PathBuf>,
    /// Minimum consecutive PAUSE exits that count as a storm
    #[arg(long, value_name = "N", default_value_t = Limits::default().length_min,
        value_parser = clap::value_parser!(u32).range(2..))]
    min: u32,
    /// Longest guest time between two exits of one storm, in microseconds
    #[arg(long, value_name = "US", default_value_t = Limits::default().in_guest_max_ns / 1_000,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    in_guest: u64,
    /// Number of the longest storms to list
    #[arg(long, value_name = "N", default_value_t = Limits::default().longest)]
    longest: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let symbols = args.kallsyms.as_deref().map(symbols).transpose()?;
    let limits = Limits {
        length_min: args.min,
        in_guest_max_ns: args.in_guest * 1_000,
        longest: args.longest,
    };
    let (input, length) = open(&args.file)?;
    let input = BufReader::with_capacity(1 << 18, Progress::new(input, length));
    let name = || args.file.display().to_string();
    let found = storms::read(input, limits, symbols.as_ref()).with_context(name)?;
    let file = args.file.display();
    if found.lines == 0 {
        anyhow::bail!("{file}: the trace is empty");
    }
    if found.exits == 0 {
        anyhow::bail!(
            "{file}: none of its {} lines is a kvm_exit as perf script, trace-cmd report or \
             tracefs print it",
            found.lines
        );
    }
    if args.json {
        out::json(1, None, &found)?;
    } else {
        out::text(unspin_report::storms::text(&found))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn symbols(path: &Path) -> anyhow::Result<Symbols> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    Symbols::read(BufReader::new(file)).with_context(|| path.display().to_string())
}

/// Opens the input. Returns its length as well, if it has one.
fn open(path: &Path) -> anyhow::Result<(Box<dyn Read>, Option<u64>)> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin().lock()), None));
    }
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let about = file.metadata()?;
    let length = about.is_file().then_some(about.len());
    Ok((Box::new(file), length))
}

/// Reader that shows its progress on a terminal.
struct Progress<R> {
    input: R,
    length: Option<u64>,
    read: u64,
    start: Instant,
    shown: Option<Instant>,
}

impl<R> Progress<R> {
    fn new(input: R, length: Option<u64>) -> Progress<R> {
        let length = length.filter(|length| *length > 0 && io::stderr().is_terminal());
        Progress { input, length, read: 0, start: Instant::now(), shown: None }
    }

    fn show(&mut self, ended: bool) {
        let Some(length) = self.length else { return };
        if ended {
            if self.shown.is_some() {
                show!("\r\x1b[K");
            }
            return;
        }
        let since = self.shown.unwrap_or(self.start);
        if since.elapsed() < Duration::from_millis(500) {
            return;
        }
        self.shown = Some(Instant::now());
        let share = (self.read as f64 / length as f64).min(1.0);
        let left_s = self.start.elapsed().as_secs_f64() * (1.0 - share) / share.max(1e-9);
        show!("\r\x1b[K{:.0} % read, {left_s:.0} s left", 100.0 * share);
    }
}

impl<R: Read> Read for Progress<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buffer)?;
        self.read += n as u64;
        self.show(n == 0);
        Ok(n)
    }
}
