//! Rounds that run a command.

use std::fs::File;
use std::io::{Read, Seek, Write, stderr};
use std::process::{self, Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use regex::Regex;
use unspin_guest::ab::{Check, Job};
use unspin_model::Better;
use unspin_model::ab::Figure;

use super::{comparable, figure};
use crate::command::Signals;

/// Longest delay until a signal or the scheduler's end is noticed. Each check wakes a vCPU.
const LOOK: Duration = Duration::from_millis(250);
/// Bytes of a failed command's output that are printed.
const OUTPUT_MAX: u64 = 64 * 1024;

/// A command that runs once per round, with its output in temporary files.
pub struct Command<'a> {
    program: &'a str,
    args: &'a [String],
    metric: Option<&'a Regex>,
    better: Better,
    signals: &'a mut Signals,
}

impl<'a> Command<'a> {
    /// Takes a program and its arguments. Without a metric, the command's duration counts.
    pub fn new(
        program: &'a str,
        args: &'a [String],
        (metric, better): (Option<&'a Regex>, Better),
        signals: &'a mut Signals,
    ) -> Command<'a> {
        Command { program, args, metric, better, signals }
    }

    fn value(&self, seconds: f64, stdout: &mut File) -> anyhow::Result<f64> {
        if self.metric.is_none() {
            return Ok(seconds);
        }
        let mut text = Vec::new();
        stdout.rewind()?;
        stdout.read_to_end(&mut text)?;
        let found = figure(&String::from_utf8_lossy(&text), self.metric);
        found
            .and_then(|found| comparable(found, self.better))
            .with_context(|| self.program.to_owned())
    }
}

impl Job<anyhow::Error> for Command<'_> {
    fn round(&mut self, check: &mut Check<'_, anyhow::Error>) -> anyhow::Result<Option<Figure>> {
        // The terminal's signal came before the command started, so the command would never get it.
        if self.signals.pass_on(None) {
            return Ok(None);
        }
        let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let mut command = process::Command::new(self.program);
        command.args(self.args).stdin(Stdio::null());
        command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
        let began = Instant::now();
        let mut child =
            command.spawn().with_context(|| format!("cannot start {}", self.program))?;
        let (ended, mut interrupted) = wait(&child, self.signals, check);
        let status = child.wait()?;
        let ended = ended?;
        interrupted |= self.signals.pass_on(None);
        if interrupted {
            return Ok(None);
        }
        if !status.success() {
            print_end(&mut stdout)?;
            print_end(&mut stderr)?;
            bail!("{} failed in a round ({status}); its output is above", self.program);
        }
        let seconds = (ended - began).as_secs_f64();
        let value = self.value(seconds, &mut stdout);
        if value.is_err() {
            print_end(&mut stdout)?;
        }
        Ok(Some(Figure { seconds, value: value?, switches_per_s: None }))
    }
}

/// Waits for a command to end, and sends it SIGTERM if the round is void. Returns the time of its
/// end, and whether a signal came. The command is not reaped, so its PID stays valid.
fn wait(
    child: &Child,
    signals: &mut Signals,
    check: &mut Check<'_, anyhow::Error>,
) -> (anyhow::Result<Instant>, bool) {
    let pid = Pid::from_raw(child.id() as i32);
    let end = when_ended(pid);
    let (mut interrupted, mut void) = (false, Ok(()));
    let ended = loop {
        match end.recv_timeout(LOOK) {
            Ok(ended) => break ended,
            Err(_) => interrupted |= signals.pass_on(Some(child)),
        }
        if void.is_ok() {
            void = check();
            if void.is_err() {
                let _ = kill(pid, Signal::SIGTERM);
            }
        }
    };
    (void.map(|()| ended), interrupted)
}

/// Starts a thread that waits for a child and sends the time of its end, to the microsecond.
fn when_ended(pid: Pid) -> Receiver<Instant> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        while waitid(Id::Pid(pid), flags) == Err(nix::Error::EINTR) {}
        let _ = sender.send(Instant::now());
    });
    receiver
}

/// Prints the end of an output on standard error.
fn print_end(output: &mut File) -> anyhow::Result<()> {
    let length = output.seek(std::io::SeekFrom::End(0))?;
    output.seek(std::io::SeekFrom::Start(length.saturating_sub(OUTPUT_MAX)))?;
    let mut text = Vec::new();
    output.read_to_end(&mut text)?;
    Ok(stderr().write_all(&text)?)
}

#[cfg(test)]
mod tests {
    use std::sync::PoisonError;

    use anyhow::anyhow;
    use nix::sys::signal::raise;

    use super::*;
    use crate::command::ALONE;

    fn round(script: &str, metric: Option<&str>) -> anyhow::Result<Option<Figure>> {
        round_with(script, metric, &mut || Ok(()))
    }

    fn round_with(
        script: &str,
        metric: Option<&str>,
        check: &mut Check<'_, anyhow::Error>,
    ) -> anyhow::Result<Option<Figure>> {
        let args = ["-c", script].map(str::to_owned);
        let metric = metric.map(|metric| Regex::new(metric).unwrap());
        let mut signals = Signals::new()?;
        let metric = (metric.as_ref(), Better::Higher);
        Command::new("sh", &args, metric, &mut signals).round(check)
    }

    fn figures_are_durations_or_read() {
        let slept = round("sleep 0.2", None).unwrap().unwrap();
        assert!((0.2..2.0).contains(&slept.value) && slept.value == slept.seconds, "{slept:?}");
        let read = round("echo ops 17; echo ops 3 >&2", Some("ops (.+)")).unwrap().unwrap();
        assert_eq!(read.value, 17.0);
    }

    fn failures_end_it() {
        let error = |script, metric| round(script, metric).unwrap_err();
        let failed = error("echo why; exit 3", None).to_string();
        assert!(failed.contains("exit status: 3"), "{failed}");
        assert!(format!("{:#}", error("echo 1", Some("ops (.+)"))).contains("matches nothing"));
        assert!(format!("{:#}", error("echo ops -1", Some("ops (.+)"))).contains("below 0"));
        let ended = round_with("sleep 50", None, &mut || Err(anyhow!("the kernel ended it")));
        assert_eq!(ended.unwrap_err().to_string(), "the kernel ended it");
    }

    fn a_signal_ends_the_round_but_no_error() {
        let mut sent = false;
        let ended = round_with("sleep 50", None, &mut || {
            if !std::mem::replace(&mut sent, true) {
                kill(Pid::this(), Signal::SIGTERM)?;
            }
            Ok(())
        });
        assert_eq!(ended.unwrap(), None);
    }

    fn a_signal_between_two_rounds_starts_no_command() {
        let mut signals = Signals::new().unwrap();
        raise(Signal::SIGTERM).unwrap();
        let file = std::env::temp_dir().join(format!("unspin-round-{}", process::id()));
        let args = [file.to_string_lossy().into_owned()];
        let metric = (None, Better::Lower);
        let round = Command::new("touch", &args, metric, &mut signals).round(&mut || Ok(()));
        let started = std::fs::remove_file(&file).is_ok();
        assert_eq!((round.unwrap(), started), (None, false));
    }

    #[test]
    fn a_command_has_a_figure_or_ends_the_rounds() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        figures_are_durations_or_read();
        failures_end_it();
        a_signal_ends_the_round_but_no_error();
        a_signal_between_two_rounds_starts_no_command();
    }
}
