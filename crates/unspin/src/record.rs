//! `unspin record`.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::Context;
use unspin_guest::record::Recorder;
use unspin_guest::sense::Sensor;
use unspin_lab::interrupt;

use crate::{out, sensing};

/// Record this guest's off intervals and spins into a session file
///
/// It records until Ctrl-C, for some seconds (--for), or while a command runs. The file gets its
/// name when it is complete: until then, a file of that name stays as it is. It needs root.
#[derive(clap::Args)]
pub struct Args {
    /// The session file
    #[arg(long, short, value_name = "FILE", default_value = "unspin.arrow.gz")]
    out: PathBuf,
    /// Stop after so many seconds
    #[arg(long = "for", value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    #[command(flatten)]
    sensing: sensing::Options,
    /// Also look every so many microseconds at what each vCPU seems to do
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(100..))]
    look: Option<u64>,
    /// Print what was recorded as JSON
    #[arg(long)]
    json: bool,
    /// A command to record, with its arguments
    #[arg(last = true, value_name = "CMD", conflicts_with = "seconds")]
    command: Vec<String>,
}

/// Does it.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    interrupt::install()?;
    let settings = args.sensing.settings();
    let out = || format!("write {}", args.out.display());
    // A session that is there is not overwritten where there will be no new one.
    let sensor = Sensor::start(&settings)?;
    if !args.json {
        eprintln!("unspin: {}", sensing::told(sensor.heartbeat));
    }
    let file = File::create(&args.out).with_context(out)?;
    let look = args.look.map(Duration::from_micros);
    let mut recorder =
        Recorder::new(sensor, &settings, look, BufWriter::new(file)).with_context(out)?;
    let mut child = start(&args.command)?;
    let started = Instant::now();
    let limit = args.seconds.map(Duration::from_secs);
    let mut code = ExitCode::SUCCESS;
    while !interrupt::requested() && limit.is_none_or(|limit| started.elapsed() < limit) {
        recorder.step().with_context(out)?;
        if let Some(status) = child.as_mut().map(Child::try_wait).transpose()?.flatten() {
            code = ExitCode::from(status.code().map_or(1, |code| code as u8));
            break;
        }
    }
    let recorded = recorder.finish().with_context(out)?;
    if args.json {
        out::line(serde_json::to_string(&recorded)?)?;
    } else {
        let missing = if recorded.missing.is_empty() {
            String::new()
        } else {
            format!("; this kernel does not have {}", recorded.missing.join(", "))
        };
        eprintln!(
            "{}: {:.1} s, {} off intervals of {:.3} vCPU-seconds, {} long spins of {:.3}, {} lost{missing}",
            args.out.display(),
            recorded.seconds,
            recorded.offs,
            recorded.off_s,
            recorded.spins,
            recorded.spin_s,
            recorded.lost
        );
    }
    Ok(code)
}

fn start(command: &[String]) -> anyhow::Result<Option<Child>> {
    let Some((program, args)) = command.split_first() else { return Ok(None) };
    let child = Command::new(program).args(args).spawn();
    Ok(Some(child.with_context(|| format!("start {program}"))?))
}
