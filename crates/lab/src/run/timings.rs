//! How long things took before, to say how long they will take.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};
use unspin_sources::cache_dir;

use crate::experiment::{Experiment, PlannedBoot};

const RUN_DEFAULT_S: f64 = 4.5;
const BOOT_DEFAULT_S: f64 = 8.0;
const NESTED_BOOT_DEFAULT_S: f64 = 18.0;
/// Weight of the newest value in the running mean.
const NEWEST: f64 = 0.3;

/// Seconds by workload (of a run) and by topology kind (of a boot).
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Timings {
    seconds: BTreeMap<String, f64>,
}

impl Timings {
    /// What this machine has seen so far.
    pub fn load() -> Timings {
        let text = fs::read_to_string(cache_dir().join("timings.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Keeps it; an estimate is not worth an error.
    pub fn save(&self) {
        if let Ok(text) = serde_json::to_string_pretty(self) {
            let _ = fs::create_dir_all(cache_dir());
            let _ = fs::write(cache_dir().join("timings.json"), text);
        }
    }

    /// Notes a run's duration, all that belongs to it included.
    pub fn note_run(&mut self, workload: &str, seconds: f64) {
        self.note(format!("run {workload}"), seconds);
    }

    /// Notes a boot's duration.
    pub fn note_boot(&mut self, nested: bool, seconds: f64) {
        self.note(format!("boot nested={nested}"), seconds);
    }

    fn note(&mut self, key: String, seconds: f64) {
        let mean = self.seconds.entry(key).or_insert(seconds);
        *mean += NEWEST * (seconds - *mean);
    }

    /// Seconds that these boots will take, runs that are done left out.
    pub fn estimate_s(
        &self,
        experiment: &Experiment,
        boots: &[PlannedBoot],
        is_done: impl Fn(u64) -> bool,
    ) -> f64 {
        let open = |boot: &PlannedBoot| -> f64 {
            let runs = boot.runs.iter().filter(|run| !is_done(run.run));
            let runs: Vec<f64> = runs.map(|run| self.run_s(&run.cell.workload)).collect();
            let nested = experiment.topologies[boot.topology].nested.is_some();
            if runs.is_empty() { 0.0 } else { runs.iter().sum::<f64>() + self.boot_s(nested) }
        };
        boots.iter().map(open).sum()
    }

    fn run_s(&self, workload: &str) -> f64 {
        self.seconds.get(&format!("run {workload}")).copied().unwrap_or(RUN_DEFAULT_S)
    }

    fn boot_s(&self, nested: bool) -> f64 {
        let default = if nested { NESTED_BOOT_DEFAULT_S } else { BOOT_DEFAULT_S };
        self.seconds.get(&format!("boot nested={nested}")).copied().unwrap_or(default)
    }
}
