//! Rests if the host's own help makes a limit needless: nothing is limited or measured.

use std::path::Path;
use std::time::Instant;

use unspin_model::scheduler::{Actuator, Stats};

use super::{ROOT, possible, set};
use crate::machine::{Facts, host_helps};
use crate::run;

/// The reason that users see.
pub const HELPED: &str =
    "this host offers PV spinlocks and steal time, with which a limit seldom gains";

/// Why nothing is done where there are no fewer vCPUs to use.
pub const ONE_VCPU: &str = "it does nothing until a second vCPU is online";

/// Does nothing, and says so.
pub struct Rest {
    started: Instant,
    /// The actuator that would limit vCPUs if the user named it, if there is one.
    actuator: Actuator,
    /// Why it rests, and how to limit vCPUs all the same.
    reason: String,
}

impl Rest {
    /// Returns a rest if the host helps, else `None`.
    pub fn where_helped() -> Option<Rest> {
        if !host_helps(&Facts::of_spinlocks()) {
            return None;
        }
        let actuator = if possible() { Actuator::Cpuset } else { Actuator::SchedExt };
        let works = actuator == Actuator::Cpuset || run::may_load();
        let option = actuator.option();
        let reason = match works {
            true => format!("{HELPED}; `unspin run {option}` limits vCPUs all the same"),
            false => HELPED.to_owned(),
        };
        Some(Rest { started: Instant::now(), actuator, reason })
    }

    /// Returns the statistics that `--status` and the metrics show.
    pub fn stats(&self) -> Stats {
        let online = set::usable(Path::new(ROOT)).unwrap_or_default();
        let vcpus = online.len() as u32;
        Stats {
            actuator: self.actuator,
            resting: Some(self.reason.clone()),
            seconds: self.started.elapsed().as_secs_f64(),
            vcpus,
            used: vcpus,
            used_vcpus: online,
            used_mean: f64::from(vcpus),
            ..Stats::default()
        }
    }
}
