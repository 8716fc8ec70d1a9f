//! Rounds that are intervals of the machine's ordinary work.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use regex::Regex;
use unspin_guest::ab::{Check, Counts, Job, Useful};
use unspin_model::Better;
use unspin_model::ab::Figure;

use super::{comparable, figure};
use crate::command::Signals;

/// Longest delay until a signal or the scheduler's end is noticed.
const LOOK: Duration = Duration::from_millis(250);
/// Time from a change of the scheduler to the start of an interval. Two trials of fewer vCPUs fit
/// into it.
const SETTLE: Duration = Duration::from_secs(1);

/// A counter that grows with the work done.
pub trait Probe {
    /// The result of one reading.
    type Reading;
    /// Reads the counter.
    fn read(&mut self) -> anyhow::Result<Self::Reading>;
    /// Computes the figure of the interval between two readings.
    fn figure(&self, from: &Self::Reading, to: &Self::Reading) -> anyhow::Result<Figure>;
}

/// A round that is an interval between two readings.
pub struct Interval<'a, P> {
    probe: P,
    length: Duration,
    settle: Duration,
    signals: &'a mut Signals,
}

impl<'a, P: Probe> Interval<'a, P> {
    /// Returns a round of this length.
    pub fn new(probe: P, length: Duration, signals: &'a mut Signals) -> Interval<'a, P> {
        Interval { probe, length, settle: SETTLE, signals }
    }

    /// Waits for `time`. Returns whether a signal came.
    fn wait(
        &mut self,
        time: Duration,
        check: &mut Check<'_, anyhow::Error>,
    ) -> anyhow::Result<bool> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            sleep(left.min(LOOK));
            check()?;
            if self.signals.pass_on(None) {
                return Ok(true);
            }
            if left <= LOOK {
                return Ok(false);
            }
        }
    }

    /// Reads the counter. Returns `None` if a signal came, because the same signal may have ended
    /// the counted work.
    fn read(&mut self) -> anyhow::Result<Option<P::Reading>> {
        let reading = self.probe.read();
        if self.signals.pass_on(None) { Ok(None) } else { reading.map(Some) }
    }
}

impl<P: Probe> Job<anyhow::Error> for Interval<'_, P> {
    fn round(&mut self, check: &mut Check<'_, anyhow::Error>) -> anyhow::Result<Option<Figure>> {
        if self.wait(self.settle, check)? {
            return Ok(None);
        }
        let Some(from) = self.read()? else { return Ok(None) };
        if self.wait(self.length, check)? {
            return Ok(None);
        }
        let Some(to) = self.read()? else { return Ok(None) };
        self.probe.figure(&from, &to).map(Some)
    }
}

/// A counter that a shell command prints.
pub struct Counter<'a> {
    line: &'a str,
    metric: Option<&'a Regex>,
    better: Better,
}

impl<'a> Counter<'a> {
    /// Returns the counter that this shell command prints.
    pub fn new(line: &'a str, (metric, better): (Option<&'a Regex>, Better)) -> Counter<'a> {
        Counter { line, metric, better }
    }
}

/// A counter's value, and the middle of the time that the reading took.
pub struct Count {
    at: Instant,
    value: f64,
}

impl Probe for Counter<'_> {
    type Reading = Count;

    fn read(&mut self) -> anyhow::Result<Count> {
        let began = Instant::now();
        let mut command = Command::new("sh");
        let done = command.args(["-c", self.line]).stdin(Stdio::null()).output()?;
        let at = began + began.elapsed() / 2;
        if !done.status.success() {
            let stderr = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            bail!("--metric-cmd `{}` failed ({}): {stderr}", self.line, done.status);
        }
        let value = figure(&String::from_utf8_lossy(&done.stdout), self.metric)
            .with_context(|| format!("--metric-cmd `{}`", self.line))?;
        Ok(Count { at, value })
    }

    fn figure(&self, from: &Count, to: &Count) -> anyhow::Result<Figure> {
        let seconds = (to.at - from.at).as_secs_f64();
        ensure!(to.value >= from.value, "the counter fell from {} to {}", from.value, to.value);
        let value = comparable((to.value - from.value) / seconds, self.better)?;
        Ok(Figure { seconds, value, switches_per_s: None })
    }
}

/// The useful work of the guest itself, as a sensor finds it.
pub struct Guest {
    useful: Useful,
}

impl Guest {
    /// Returns a probe that uses this sensor.
    pub fn new(useful: Useful) -> Guest {
        Guest { useful }
    }
}

impl Probe for Guest {
    type Reading = Counts;

    fn read(&mut self) -> anyhow::Result<Counts> {
        Ok(self.useful.counts())
    }

    fn figure(&self, from: &Counts, to: &Counts) -> anyhow::Result<Figure> {
        let value = to.useful_since(from).context("a vCPU came or went during a round")?;
        let switches_per_s = to.switches_since(from);
        Ok(Figure { seconds: to.seconds_since(from), value, switches_per_s })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::PoisonError;

    use super::*;
    use crate::command::ALONE;

    fn round(line: &str, metric: Option<&str>) -> anyhow::Result<Option<Figure>> {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut signals = Signals::new()?;
        let metric = metric.map(|metric| Regex::new(metric).unwrap());
        let counter = Counter::new(line, (metric.as_ref(), Better::Higher));
        let length = Duration::from_millis(300);
        let mut interval =
            Interval { settle: Duration::ZERO, ..Interval::new(counter, length, &mut signals) };
        interval.round(&mut || Ok(()))
    }

    #[test]
    fn a_figure_is_what_was_counted_in_a_second() {
        let counter = Counter::new("", (None, Better::Higher));
        let began = Instant::now();
        let count = |seconds, value| Count { at: began + Duration::from_secs(seconds), value };
        let figure = counter.figure(&count(1, 5_000.0), &count(5, 7_000.0)).unwrap();
        assert_eq!((figure.value, figure.seconds), (500.0, 4.0));
        let fell = counter.figure(&count(1, 7.0), &count(5, 6.0)).unwrap_err().to_string();
        assert_eq!(fell, "the counter fell from 7 to 6");
    }

    /// Checks the figure on a busy machine too: a long reading counts as made in its middle.
    #[test]
    fn a_round_waits_between_two_readings() {
        for (line, metric) in [("date +%s%3N", None), ("echo n $(date +%s%3N)", Some(r"n (\d+)"))] {
            let figure = round(line, metric).unwrap().unwrap();
            assert!(figure.seconds >= 0.3, "{figure:?}");
            // Both readings round down to milliseconds, and each is off by at most half its
            // duration.
            let grown_ms = figure.value * figure.seconds;
            assert!(grown_ms > 298.0 && figure.value < 2_010.0, "{figure:?}");
        }
    }

    #[test]
    fn a_counter_that_cannot_be_read_is_an_error() {
        let error = |line| format!("{:#}", round(line, None).unwrap_err());
        assert_eq!(
            error("echo no; exit 2"),
            "--metric-cmd `echo no; exit 2` failed (exit status: 2): "
        );
        assert_eq!(error("echo no"), "--metric-cmd `echo no`: `no` is not a number");
        let falls = "date +%s%3N | sed s/^/-/";
        assert!(error(falls).starts_with("the counter fell from -"), "{}", error(falls));
    }
}
