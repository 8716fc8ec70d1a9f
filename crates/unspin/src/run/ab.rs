//! `unspin run --ab`: does unspin improve the user's work?

mod command;
mod interval;
mod progress;
mod schedulers;

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use regex::Regex;
use unspin_guest::ab::{Job, Measured, Useful, measure};
use unspin_guest::confine::HELPED;
use unspin_model::ab::{Rounds, Source};
use unspin_model::class::Class;
use unspin_model::{Better, Metric};
use unspin_report::ab::Judged;
use unspin_stats::ab::{PAIRS_MIN, order};

use super::choice::Choice;
use crate::command::Signals;
use crate::{failure, here, out, span};
use command::Command;
use interval::{Counter, Guest, Interval};
use progress::Progress;
use schedulers::Schedulers;

/// Exit status after a signal.
const INTERRUPTED: u8 = 130;

/// Maximum number of pairs. More would take too long.
const PAIRS_MAX: u32 = 1000;

/// Why the guest's own figure cannot be used. The remedy follows.
const BLIND: &str = "the kernel hides where it spins, so spinning would pass for useful work; \
    compare by -- CMD or --metric-cmd, or show the addresses";

/// Options of the comparison.
#[derive(clap::Args)]
pub struct Ab {
    /// Do the work without and with unspin in N pairs of rounds, and say which is better
    ///
    /// With CMD, each round runs CMD once, and its duration counts. Without CMD, a round is an
    /// interval of --round. A first round warms up and does not count. Fewer than six pairs
    /// cannot show a difference.
    #[arg(long, value_name = "N", value_parser = pairs,
        conflicts_with_all = ["status", "stats", "listen", "restore", "socket"])]
    ab: Option<u32>,
    /// Regular expression whose first group is the figure, in what CMD or --metric-cmd prints
    #[arg(long, value_name = "REGEX", requires = "ab")]
    metric: Option<Regex>,
    /// Shell command that prints a counter of work done; read before and after each interval
    #[arg(long, value_name = "CMD", requires = "ab", conflicts_with = "command")]
    metric_cmd: Option<String>,
    /// Which figures are better [default: lower durations, higher figures of --metric]
    #[arg(long, value_enum, value_name = "WHICH", requires = "ab")]
    better: Option<Which>,
    /// Length of an interval, which begins one second after the scheduler has changed
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = span::seconds,
        requires = "ab", conflicts_with = "command")]
    round: Duration,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Which {
    /// A rate: more is better
    Higher,
    /// A time: less is better
    Lower,
}

/// The compared work.
struct Subject {
    metric: Metric,
    source: Source,
    /// Length of a round in seconds, if it is known in advance.
    round_s: Option<f64>,
}

impl Ab {
    /// Returns the number of pairs, or `None` without `--ab`.
    pub fn pairs(&self) -> Option<u32> {
        self.ab
    }

    /// Compares, and prints the result.
    pub fn run(
        &self,
        pairs: u32,
        choice: Choice,
        command: &[String],
        json: bool,
    ) -> anyhow::Result<ExitCode> {
        let subject = self.subject(command)?;
        let mut signals = Signals::new()?;
        let rests = choice.rest().is_some();
        let mut schedulers = Schedulers::new(Choice { rests: false, ..choice })?;
        let needs = rests.then(|| schedulers.actuator().option());
        if let Some(option) = needs {
            note!("unspin: {HELPED}: it acts only with {option}, which is compared here");
        }
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = since_1970.as_nanos() as u64;
        let mut progress = Progress::new(pairs, subject.round_s);
        let mut run = |job: &mut dyn Job<anyhow::Error>| {
            let mut watch = |place| progress.show(place);
            measure(&order(pairs, seed), &mut schedulers, job, &mut watch)
        };
        let metric = (self.metric.as_ref(), subject.metric.better);
        let measured = match (command, &self.metric_cmd) {
            ([program, args @ ..], _) => {
                run(&mut Command::new(program, args, metric, &mut signals))
            }
            ([], Some(line)) => {
                let counter = Counter::new(line, metric);
                run(&mut Interval::new(counter, self.round, &mut signals))
            }
            ([], None) => {
                let useful = Useful::start()?;
                if let Some(remedy) = useful.blind() {
                    let text = format!("{BLIND} ({remedy})");
                    return Err(failure::of_class(Class::Unavailable, text));
                }
                run(&mut Interval::new(Guest::new(useful), self.round, &mut signals))
            }
        };
        drop(progress);
        print(rounds(measured?, subject, needs, pairs, seed), json)
    }

    fn subject(&self, command: &[String]) -> anyhow::Result<Subject> {
        let better = match self.better {
            Some(Which::Higher) => Some(Better::Higher),
            Some(Which::Lower) => Some(Better::Lower),
            None => None,
        };
        let has_command = !command.is_empty();
        let of = |name: &str, unit: &str, better, source| {
            let metric = Metric { name: name.into(), unit: unit.into(), better };
            let round_s = (!has_command).then_some(self.round.as_secs_f64());
            Subject { metric, source, round_s }
        };
        let higher = better.unwrap_or(Better::Higher);
        match (&self.metric, &self.metric_cmd) {
            (_, Some(_)) => Ok(of("counter", "1/s", higher, Source::Counter)),
            (Some(_), None) if has_command => Ok(of("metric", "", higher, Source::Output)),
            (Some(_), None) => Err(usage("--metric needs `-- CMD` or --metric-cmd")),
            (None, None) if better.is_some() => {
                Err(usage("--better needs --metric or --metric-cmd"))
            }
            (None, None) if has_command => Ok(of("time", "s", Better::Lower, Source::Duration)),
            (None, None) => Ok(of("useful", "vCPUs", Better::Higher, Source::Guest)),
        }
    }
}

fn pairs(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(pairs) if (PAIRS_MIN..=PAIRS_MAX).contains(&pairs) => Ok(pairs),
        Ok(pairs) if pairs < PAIRS_MIN => {
            Err(format!("fewer than {PAIRS_MIN} pairs cannot show a difference"))
        }
        _ => Err(format!("a number from {PAIRS_MIN} to {PAIRS_MAX} is needed")),
    }
}

fn usage(text: &str) -> anyhow::Error {
    failure::of_class(Class::Usage, text)
}

fn rounds(
    measured: Measured,
    subject: Subject,
    needs: Option<&str>,
    pairs: u32,
    seed: u64,
) -> Rounds {
    let Measured { warm_up, rounds, interrupted } = measured;
    let Subject { metric, source, .. } = subject;
    let needs = needs.map(str::to_owned);
    Rounds { metric, needs, source, pairs, seed, interrupted, warm_up, rounds }
}

fn print(rounds: Rounds, json: bool) -> anyhow::Result<ExitCode> {
    let interrupted = rounds.interrupted;
    let judged = Judged::of(rounds);
    if json {
        out::json(1, Some(&here::about()), &judged)?;
    } else {
        out::text(judged.text())?;
    }
    Ok(if interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// Returns the figure in a text: the first group of the first match, or the whole text.
fn figure(text: &str, metric: Option<&Regex>) -> anyhow::Result<f64> {
    let found = match metric {
        None => text.trim(),
        Some(regex) => {
            let found = regex.captures(text);
            let missing = || anyhow!("--metric `{regex}` matches nothing in its output");
            let found = found.ok_or_else(missing)?;
            let group = found.iter().skip(1).flatten().next().or(found.get(0));
            group.map_or("", |group| group.as_str())
        }
    };
    let number: Option<f64> = found.trim().parse().ok();
    number.filter(|number| number.is_finite()).ok_or_else(|| anyhow!("`{found}` is not a number"))
}

/// Returns the figure if a speed can be computed from it, or else an error.
fn comparable(figure: f64, better: Better) -> anyhow::Result<f64> {
    match better {
        Better::Higher if figure >= 0.0 => Ok(figure),
        Better::Lower if figure > 0.0 => Ok(figure),
        Better::Higher => Err(anyhow!("the figure {figure} is below 0")),
        Better::Lower => Err(anyhow!("the figure {figure} is not above 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_first_group_or_the_whole_text() {
        let regex = |pattern: &str| Regex::new(pattern).unwrap();
        assert_eq!(figure(" 17\n", None).unwrap(), 17.0);
        assert_eq!(figure("a: 1.5 b: 2", Some(&regex(r"b: (\S+)"))).unwrap(), 2.0);
        assert_eq!(figure("a: 1.5 b: 2", Some(&regex(r"[\d.]+"))).unwrap(), 1.5);
        assert_eq!(figure("new 3", Some(&regex(r"old (\d)|new (\d)"))).unwrap(), 3.0);
        for (text, pattern) in [("none", r"(\d)"), ("a nan", r"a (\S+)"), ("", "()")] {
            assert!(figure(text, Some(&regex(pattern))).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_of_nothing_cannot_be_compared() {
        assert!(comparable(0.0, Better::Higher).is_ok());
        assert!(comparable(-1.0, Better::Higher).is_err());
        assert!(comparable(0.0, Better::Lower).is_err());
    }
}
