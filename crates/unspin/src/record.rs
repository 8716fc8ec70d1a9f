//! `unspin record`.

use std::io::{BufWriter, IsTerminal, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use unspin_guest::record::{Recorded, Recorder};
use unspin_guest::sense::{Sensor, hidden, remedies};
use unspin_lab::interrupt;
use unspin_model::class::Class;
use unspin_report::format::{plural, time};
use unspin_report::printable;

use crate::command::Running;
use crate::failure::of_class;
use crate::new_file::NewFile;
use crate::{here, out, sensing, span};

/// Record this guest's off intervals and spins into a session file
///
/// It records until Ctrl-C, for some seconds (--for), or while a command runs. A session file that
/// exists is replaced when the new one is complete, and not before. Spins are recorded from 50 us
/// on. It needs root.
///
/// A command gets the signals that ask unspin to end, and unspin waits for it.
#[derive(clap::Args)]
pub struct Args {
    /// The session file; - is standard output, where that is a file or a pipe
    #[arg(long, short, value_name = "FILE", default_value = "unspin.arrow.gz")]
    out: PathBuf,
    /// How long to record: 10, 10s, 2m
    #[arg(long = "for", value_name = "TIME", value_parser = span::seconds)]
    time: Option<Duration>,
    #[command(flatten)]
    sensing: sensing::Options,
    /// For the lab: microseconds between looks at what each vCPU seems to do [default: none]
    #[arg(long, value_name = "US", hide = true, value_parser = clap::value_parser!(u64).range(100..))]
    look: Option<u64>,
    /// Print a summary as JSON; what CMD prints goes to standard error
    #[arg(long)]
    json: bool,
    /// Command to record, with its arguments
    #[arg(last = true, value_name = "CMD", conflicts_with = "time")]
    command: Vec<String>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let to_stdout = out::is_stdout(&args.out);
    if let Some(wrong) = wrong_output(&args).filter(|_| to_stdout) {
        return Err(of_class(Class::Usage, wrong));
    }
    if args.command.is_empty() {
        interrupt::install()?;
    }
    let settings = args.sensing.settings();
    let sensor = Sensor::start(&settings)?;
    if !args.json {
        note!("unspin: {}", sensing::describe(sensor.heartbeat, &sensor.missing));
    }
    let look = args.look.map(Duration::from_micros);
    let name = || args.out.display().to_string();
    let mut file = if to_stdout { NewFile::stdout() } else { NewFile::create(&args.out) }?;
    let out = BufWriter::new(&mut file);
    let mut recorder =
        Recorder::new(sensor, &settings, look, &here::about(), out).with_context(name)?;
    let mut running = match Running::start(&args.command, args.json) {
        Ok(running) => running,
        Err(not_started) => {
            drop(recorder);
            file.discard();
            return Ok(not_started.report());
        }
    };
    let limit = args.time.map(|time| Instant::now() + time);
    let code = match record(&mut recorder, running.as_mut(), limit) {
        Ok(code) => code,
        Err(error) => {
            let seconds = recorder.seconds();
            drop(recorder);
            keep(file, seconds);
            return Err(ended_without(running, error.context(name()))?);
        }
    };
    let seconds = recorder.seconds();
    let recorded = match recorder.finish().with_context(name) {
        Ok(recorded) => recorded,
        Err(error) => {
            keep(file, seconds);
            return Err(error);
        }
    };
    file.finish()?;
    print(&args, &recorded)?;
    Ok(ExitCode::from(code))
}

/// Records until the command ends. Without a command, records until a signal or the time limit.
/// Returns the command's exit status.
fn record(
    recorder: &mut Recorder<impl Write>,
    mut running: Option<&mut Running>,
    limit: Option<Instant>,
) -> anyhow::Result<u8> {
    loop {
        recorder.step()?;
        match &mut running {
            Some(running) => {
                if let Some(code) = running.step()? {
                    return Ok(code);
                }
            }
            None if interrupt::requested() || limit.is_some_and(|at| at <= Instant::now()) => {
                return Ok(0);
            }
            None => {}
        }
    }
}

/// Keeps the first `seconds` of a failed recording, if there are any, and prints the file's path.
fn keep(file: NewFile, seconds: f64) {
    if seconds == 0.0 {
        file.discard();
    } else if let Some(path) = file.keep() {
        note!("{}", kept(&path, seconds));
    }
}

fn kept(path: &Path, seconds: f64) -> String {
    let (time, path) = (time(seconds), path.display());
    printable(&format!("unspin: the first {time} are in {path}: `unspin report {path}` reads them"))
}

/// Lets the command go on when recording fails, for example on a full disk.
fn ended_without(running: Option<Running>, error: anyhow::Error) -> anyhow::Result<anyhow::Error> {
    let Some(mut running) = running else { return Ok(error) };
    note!("unspin: {error:#}; the command goes on without a recording");
    let code = running.wait()?;
    Ok(error.context(format!("the command ended with exit code {code}; it was not recorded")))
}

fn print(args: &Args, recorded: &Recorded) -> anyhow::Result<()> {
    if args.json {
        return out::json(1, Some(&here::about()), recorded);
    }
    note!("{}", closing(&args.out, recorded));
    Ok(())
}

/// Describes the findings, the data that this kernel hides, and the next command.
fn closing(path: &Path, recorded: &Recorded) -> String {
    let is_file = !out::is_stdout(path);
    let out = if is_file { path.display().to_string() } else { "standard output".to_owned() };
    let times = |count: u64, what: &str, seconds: f64| match count {
        0 => format!("no {what}s"),
        _ => format!("{} ({})", plural(count, what, &format!("{what}s")), time(seconds)),
    };
    let mut found = format!(
        "{out}: {}, {}, {}",
        time(recorded.seconds),
        times(recorded.offs, "off interval", recorded.off_s),
        times(recorded.spins, "long spin", recorded.spin_s),
    );
    if recorded.lost > 0 {
        found += &format!(", {}", plural(recorded.lost, "finding lost", "findings lost"));
    }
    let hidden = hidden(&recorded.missing);
    if !hidden.is_empty() {
        found += &format!("; this kernel does not show {}", hidden.join(", "));
    }
    for remedy in remedies(&recorded.missing) {
        found += &format!("; {remedy}");
    }
    if is_file {
        found += &format!("\nNext: unspin report {out}");
    }
    found.lines().map(printable).collect::<Vec<_>>().join("\n")
}

/// Returns why standard output cannot carry the session.
fn wrong_output(args: &Args) -> Option<&'static str> {
    let because = |wrong: bool, why| wrong.then_some(why);
    because(args.json, "-o - has standard output to itself: leave out --json, or name a file")
        .or(because(
            !args.command.is_empty(),
            "-o - would mix the session with what CMD prints: name a file",
        ))
        .or(because(
            stdout().is_terminal(),
            "a session is not for a terminal: name a file, or pipe it to a program",
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_recording_has_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let (old, new) = (folder.path().join("old.gz"), folder.path().join("new.gz"));
        std::fs::write(&old, "a session").expect("write");
        let names = || std::fs::read_dir(folder.path()).expect("a folder").count();
        for path in [&old, &new] {
            keep(NewFile::create(path).expect("a file"), 0.0);
        }
        assert_eq!(names(), 1, "nothing was whole");
        for path in [&old, &new] {
            let mut file = NewFile::create(path).expect("a file");
            file.write_all(b"batches").expect("write");
            keep(file, 2.0);
        }
        assert_eq!(names(), 3, "the old one, what was to replace it, and the new one");
        assert_eq!(std::fs::read(&old).expect("read"), b"a session");
        assert_eq!(std::fs::read(&new).expect("read"), b"batches");
        let text = kept(&new, 2.0);
        let path = new.display();
        assert!(text.ends_with(&format!("are in {path}: `unspin report {path}` reads them")));
        assert!(text.starts_with("unspin: the first 2.00 s "), "{text}");
    }

    #[test]
    fn a_recording_ends_with_what_is_hidden_and_the_next_command() {
        let recorded = Recorded {
            seconds: 2.0,
            offs: 3,
            off_s: 0.25,
            lost: 1,
            missing: vec!["fentry/smp_call_function_many_cond".into()],
            ..Recorded::default()
        };
        let text = closing(Path::new("a.arrow.gz"), &recorded);
        assert_eq!(
            text,
            "a.arrow.gz: 2.00 s, 3 off intervals (250 ms), no long spins, 1 finding lost; this \
             kernel does not show waits for IPIs\nNext: unspin report a.arrow.gz"
        );
        let missing = vec!["kallsyms".into()];
        let hides = Recorded { missing, ..recorded.clone() };
        let text = closing(Path::new("a.arrow.gz"), &hides);
        assert!(text.contains("kernel.kptr_restrict=1\nNext: "), "{text}");
        let piped = closing(Path::new("-"), &recorded);
        assert!(
            piped.starts_with("standard output: 2.00 s, ") && !piped.contains("Next"),
            "{piped}"
        );
    }
}
