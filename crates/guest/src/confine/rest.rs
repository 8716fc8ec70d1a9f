//! Where the host's own help makes a limit needless: nothing is limited or measured.

use std::path::Path;
use std::time::Instant;

use unspin_model::scheduler::{Actuator, Limits, Stats};

use super::{ROOT, set};
use crate::machine::{Facts, host_helps};

/// Why nothing is done.
pub const HELPED: &str =
    "this host offers PV spinlocks and steal time, with which a limit seldom gains";

/// Does nothing, and says so.
pub struct Rest {
    started: Instant,
    online: Vec<u32>,
}

impl Rest {
    /// Where the host helps; `None` elsewhere.
    pub fn where_helped() -> Option<Rest> {
        host_helps(&Facts::of_spinlocks()).then(|| Rest {
            started: Instant::now(),
            online: set::usable(Path::new(ROOT)).unwrap_or_default(),
        })
    }

    /// What `--status` and the metrics show.
    pub fn stats(&self) -> Stats {
        let vcpus = self.online.len() as u32;
        let not_counted = vec![format!("time off and spins: {HELPED}")];
        let limits = Limits { not_counted, ..Limits::default() };
        Stats {
            actuator: Actuator::Cpuset,
            seconds: self.started.elapsed().as_secs_f64(),
            vcpus,
            used: vcpus,
            used_vcpus: self.online.clone(),
            used_mean: f64::from(vcpus),
            limits: Some(limits),
            ..Stats::default()
        }
    }
}
