//! How the sensor is to work: the options that `watch` and `record` share.

use unspin_guest::sense::{Beat, Heartbeat, Limits, Settings};

#[derive(clap::Args)]
pub struct Options {
    /// Share of each vCPU's time that heartbeats may take, in percent. They show off
    /// intervals that the kernel's own tick misses; what one costs is measured at the start
    /// [default: 1]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    budget: Option<f64>,
    /// Microseconds between two heartbeats of a vCPU that is not idle, whatever they cost;
    /// 0: none
    #[arg(long, value_name = "US", conflicts_with = "budget",
        value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    beat: Option<u64>,
    /// Microseconds by which a timer or an answer is late when its vCPU was off
    /// [default: four times what is usual here, from 200 to 2000]
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    late: Option<u64>,
}

impl Options {
    /// For this machine.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings::of_this_machine();
        settings.beat = match (self.beat, self.budget) {
            (Some(us), _) => Beat::Every(us * 1_000),
            (None, Some(percent)) => Beat::Within(percent / 100.0),
            (None, None) => settings.beat,
        };
        if let Some(us) = self.late {
            settings.limits = Limits { timer_ns: us * 1_000, wake_ns: us * 1_000 };
        }
        settings
    }

    /// Whether heartbeats were asked for, or asked not to be.
    pub fn tell_heartbeats(&self) -> bool {
        self.beat.is_some() || self.budget.is_some()
    }
}

/// What this kernel cannot tell, if there is something.
pub fn missing(names: &[String]) -> Option<String> {
    let names = names.join(", ");
    (!names.is_empty()).then(|| format!("not seen, because this kernel does not have it: {names}"))
}

/// What was chosen and why, for who reads along.
pub fn told(heartbeat: Heartbeat) -> String {
    let cost = match heartbeat.cost_ns {
        Some(ns) => format!(", one takes {:.1} us here", ns as f64 / 1e3),
        None => String::new(),
    };
    match heartbeat.period_ns {
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
