//! Shows the progress of an experiment.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use unspin_model::{Outcome, RunRecord};

/// Time between two lines if the output is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(30);
/// Share of a stage below which its pace does not allow an estimate.
const ESTIMATE_FROM: f64 = 0.03;

/// An event in an experiment.
#[derive(Debug)]
pub enum Event<'a> {
    /// A stage of the preparation, and the share that is done if it is known.
    Stage(&'a str, Option<f64>),
    /// The selected runs begin. The numbers are those of finished and of all selected runs.
    Begin(u64, u64),
    /// VMs are starting.
    Boot(&'a str),
    /// A run ended. The numbers are those of selected runs with a result, and of seconds left.
    Run(&'a RunRecord, u64, f64),
    /// A run in virtual time made progress.
    Reached {
        /// Cell and seed of the run.
        what: &'a str,
        /// Virtual time that the run has reached, in seconds.
        virtual_s: f64,
        /// Number of selected runs with a result.
        done: u64,
        /// Estimated seconds until all runs are done.
        left_s: f64,
    },
    /// A message worth a line.
    Note(&'a str),
}

/// A receiver of progress.
pub trait Progress {
    /// Handles an event.
    fn event(&mut self, event: Event<'_>);
}

/// A progress bar on a terminal, or occasional lines elsewhere. Both go to standard error.
pub struct Bar {
    bar: ProgressBar,
    terminal: bool,
    total: u64,
    stage: String,
    stage_began: Instant,
    last_line: Option<Instant>,
}

impl Bar {
    /// Makes a bar without a length.
    pub fn new() -> Bar {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let terminal = std::io::stderr().is_terminal();
        Bar {
            bar,
            terminal,
            total: 0,
            stage: String::new(),
            stage_began: Instant::now(),
            last_line: None,
        }
    }

    fn line(&mut self, text: &str) {
        if self.terminal {
            self.bar.println(text);
        } else {
            eprintln!("{text}");
        }
    }

    fn now_and_then(&mut self, text: impl FnOnce() -> String) {
        if self.last_line.is_none_or(|last| last.elapsed() > LINE_EVERY) {
            self.last_line = Some(Instant::now());
            eprintln!("{}", text());
        }
    }

    fn stage(&mut self, stage: &str, fraction: Option<f64>) {
        let new = self.stage != stage;
        if new {
            self.stage = stage.to_owned();
            self.stage_began = Instant::now();
        }
        let share = share(fraction, self.stage_began.elapsed());
        if self.terminal {
            self.bar.set_message(format!("{stage}{share}"));
            self.bar.tick();
        } else if new {
            self.last_line = Some(Instant::now());
            eprintln!("{stage}{share}");
        } else {
            self.now_and_then(|| format!("{stage}{share}"));
        }
    }

    fn run(&mut self, record: &RunRecord, done: u64, left_s: f64) {
        let total = self.total;
        let what = format!("{}: {}", record.cell, outcome(record));
        if matches!(record.outcome, Outcome::Failed { .. }) {
            self.line(&what);
        }
        if self.terminal {
            self.bar.set_position(done);
            self.bar.set_message(format!("{} left, {what}", duration(left_s)));
        } else {
            self.now_and_then(|| format!("{done}/{total} runs, {} left, {what}", duration(left_s)));
        }
    }
}

impl Default for Bar {
    fn default() -> Self {
        Bar::new()
    }
}

impl Progress for Bar {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Stage(stage, fraction) => self.stage(stage, fraction),
            Event::Begin(done, total) => {
                self.total = total;
                self.bar.set_length(total);
                self.bar.set_position(done);
            }
            Event::Boot(what) if self.terminal => self.bar.set_message(format!("booting {what}")),
            Event::Boot(_) => {}
            Event::Reached { what, virtual_s, left_s, .. } if self.terminal => {
                self.bar.set_message(reached(what, virtual_s, left_s));
            }
            Event::Reached { what, virtual_s, done, left_s } => {
                let total = self.total;
                self.now_and_then(|| {
                    format!("{done}/{total} runs, {}", reached(what, virtual_s, left_s))
                });
            }
            Event::Run(record, done, left_s) => self.run(record, done, left_s),
            Event::Note(text) => self.line(text),
        }
    }
}

/// Formats the progress of a run in virtual time and the time left for all runs.
fn reached(what: &str, virtual_s: f64, left_s: f64) -> String {
    format!("{} left, {what}: {virtual_s:.1} virtual s so far", duration(left_s))
}

/// Formats the progress of a stage, and the time left at its present pace.
fn share(fraction: Option<f64>, elapsed: Duration) -> String {
    let Some(done) = fraction else { return String::new() };
    let percent = format!(" {:.0} %", done * 100.0);
    if done < ESTIMATE_FROM || elapsed < Duration::from_secs(5) {
        return percent;
    }
    let left_s = elapsed.as_secs_f64() * (1.0 - done) / done;
    format!("{percent}, {} left", duration(left_s))
}

fn outcome(record: &RunRecord) -> String {
    match &record.outcome {
        Outcome::Done { value } => format!("{value:.4} {}", record.metric.unit),
        Outcome::DidNotFinish { limit_s } => format!("did not finish in {limit_s} s"),
        Outcome::Failed { kind, detail } => {
            let first = detail.lines().next().unwrap_or_default();
            format!("attempt {} failed, {kind:?}: {first}", record.attempt)
        }
    }
}

/// Formats a duration as `42 s`, `7 min` or `1 h 20 min`.
pub fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_under_way_is_named_with_the_time_that_is_left() {
        assert_eq!(
            reached("vips 2:1 stock lab, seed 3", 4.25, 400.0),
            "7 min left, vips 2:1 stock lab, seed 3: 4.2 virtual s so far"
        );
    }

    #[test]
    fn a_stage_says_how_long_it_takes_once_its_pace_is_known() {
        let minute = Duration::from_secs(60);
        assert_eq!(share(None, minute), "");
        assert_eq!(share(Some(0.01), minute), " 1 %");
        assert_eq!(share(Some(0.5), Duration::from_secs(1)), " 50 %");
        assert_eq!(share(Some(0.25), minute), " 25 %, 3 min left");
    }
}
