//! Options of the sensor that `watch` and `record` share.

use std::time::Duration;

use unspin_guest::sense::{self, Beat, Heartbeat, Limits, Settings};

use crate::span;

#[derive(clap::Args)]
pub struct Options {
    /// Limit on heartbeats, in percent of each vCPU's time. Heartbeats show off intervals that
    /// the kernel's own tick misses. Their cost is measured at the start [default: 1]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    budget: Option<f64>,
    /// Time between two heartbeats of a vCPU that is not idle, regardless of their cost: 500,
    /// 500us, 2ms; 0 for none, else at least 100us
    #[arg(long, value_name = "TIME", conflicts_with = "budget", value_parser = span::beat)]
    beat: Option<Duration>,
    /// Lateness of a timer or an answer from which its vCPU counts as off: 200, 200us, 2ms. It
    /// is raised where timers are that late although their vCPU is on
    /// [default: four times the usual lateness here, from 200us to 2ms]
    #[arg(long, value_name = "TIME", value_parser = span::microseconds)]
    late: Option<Duration>,
}

impl Options {
    /// Returns the settings for this machine.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings::of_this_machine();
        settings.beat = match (self.beat, self.budget) {
            (Some(time), _) => Beat::Every(time.as_nanos() as u64),
            (None, Some(percent)) => Beat::Within(percent / 100.0),
            (None, None) => settings.beat,
        };
        if let Some(late) = self.late {
            let (asked_ns, least_ns) = (late.as_nanos() as u64, sense::least_late_ns());
            if asked_ns < least_ns {
                let (asked, least) = (asked_ns as f64 / 1e3, least_ns as f64 / 1e3);
                note!(
                    "unspin: --late raised from {asked:.0} to {least:.0} us: here timers are as \
                     late while their vCPU is on, which would count as off"
                );
            }
            let ns = asked_ns.max(least_ns);
            settings.limits = Limits { timer_ns: ns, wake_ns: ns };
        }
        settings
    }

    /// Returns whether the user set heartbeats, including off.
    pub fn chooses_heartbeats(&self) -> bool {
        self.beat.is_some() || self.budget.is_some()
    }
}

/// Describes the events that this kernel does not show, if there are any.
pub fn missing(names: &[String]) -> Option<String> {
    let hidden = sense::hidden(names).join(", ");
    let hidden = if hidden.is_empty() { "everything".into() } else { hidden };
    let mut lacks = vec![format!("missing: {}", names.join(", "))];
    lacks.extend(sense::remedies(names).into_iter().map(str::to_owned));
    let lacks = lacks.join("; ");
    (!names.is_empty()).then(|| format!("this kernel does not show {hidden} ({lacks})"))
}

/// Describes the chosen heartbeats, and the events that this kernel lacks.
pub fn describe(heartbeat: Heartbeat, missing: &[String]) -> String {
    let cost = match heartbeat.cost_ns {
        Some(ns) => format!("; each costs {:.1} us here", ns as f64 / 1e3),
        None => String::new(),
    };
    match heartbeat.period_ns {
        0 if sense::hidden(missing).contains(&sense::BUSY) => {
            format!("no heartbeats{cost}: this kernel does not show {}", sense::BUSY)
        }
        0 => format!("no heartbeats{cost}: off intervals show by the kernel's own tick"),
        ns => format!("a heartbeat every {} us{cost}", ns / 1_000),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 50.0 => Ok(value),
        Ok(_) => Err("more than 0 and at most 50 is meant".into()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn timer_ns(late: &str) -> u64 {
        Line::parse_from(["x", "--late", late]).options.settings().limits.timer_ns
    }

    #[test]
    fn without_heartbeats_the_tick_shows_off_intervals_where_it_is_known() {
        let none = Heartbeat { period_ns: 0, cost_ns: Some(90_000) };
        assert!(describe(none, &[]).ends_with("show by the kernel's own tick"));
        let missing = ["hrtimer_bases", "heartbeats"].map(str::to_owned);
        let text = describe(none, &missing);
        assert!(text.ends_with("does not show off intervals of busy vCPUs"), "{text}");
        let every = Heartbeat { period_ns: 500_000, cost_ns: None };
        assert_eq!(describe(every, &missing[..1]), "a heartbeat every 500 us");
    }

    #[test]
    fn what_the_user_can_do_about_it_is_said() {
        let text = super::missing(&["kallsyms".to_owned()]).expect("something is missing");
        assert!(text.starts_with("this kernel does not show where the kernel spins"), "{text}");
        assert!(text.ends_with("sysctl kernel.kptr_restrict=1)"), "{text}");
        assert_eq!(super::missing(&[]), None);
    }

    /// Checks that `--late` has a lower bound: below the usual timer lateness, every vCPU would
    /// count as off.
    #[test]
    fn a_limit_that_is_too_low_is_raised_and_others_are_taken() {
        assert!(timer_ns("1us") >= 10_000, "{}", timer_ns("1us"));
        assert_eq!(timer_ns("50ms"), 50_000_000);
    }
}
