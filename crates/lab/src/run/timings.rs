//! Records how long runs and boots took, to estimate how long others will take.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};
use unspin_sources::cache_dir;

use crate::experiment::{Experiment, PlannedBoot, PlannedRun, Topology};

const RUN_DEFAULT_S: f64 = 4.5;
const VIRTUAL_RUN_DEFAULT_S: f64 = 40.0;
const BOOT_DEFAULT_S: f64 = 8.0;
const NESTED_BOOT_DEFAULT_S: f64 = 18.0;
/// Weight of the newest value in the moving average.
const NEWEST: f64 = 0.3;

/// Durations in seconds: of runs by workload, and of boots by kind of topology.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Timings {
    seconds: BTreeMap<String, f64>,
}

impl Timings {
    /// Loads the durations that this machine has measured.
    pub fn load() -> Timings {
        let text = fs::read_to_string(cache_dir().join("timings.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Saves the durations. Errors are ignored, because an estimate is not worth failing for.
    pub fn save(&self) {
        if let Ok(text) = serde_json::to_string_pretty(self) {
            let _ = fs::create_dir_all(cache_dir());
            let _ = fs::write(cache_dir().join("timings.json"), text);
        }
    }

    /// Records the duration of a run, including its setup and cleanup.
    pub fn note_run(&mut self, boot: &PlannedBoot, run: &PlannedRun, seconds: f64) {
        self.note(run_key(boot, run), seconds);
    }

    /// Records the duration of a boot. In virtual time, the run's duration includes the boot.
    pub fn note_boot(&mut self, boot: &PlannedBoot, topology: &Topology, seconds: f64) {
        if !boot.virtual_time {
            self.note(boot_key(topology.nested.is_some()), seconds);
        }
    }

    fn note(&mut self, key: String, seconds: f64) {
        let mean = self.seconds.entry(key).or_insert(seconds);
        *mean += NEWEST * (seconds - *mean);
    }

    /// Estimates in seconds how long the unfinished runs of these boots will take. In virtual time,
    /// as many runs as lanes proceed in parallel, but the total is at least the longest run.
    pub fn estimate_s(
        &self,
        experiment: &Experiment,
        boots: &[PlannedBoot],
        lanes: usize,
        is_over: impl Fn(u64) -> bool,
    ) -> f64 {
        let (mut real_s, mut virtual_s, mut longest_s) = (0.0, 0.0, 0.0_f64);
        for boot in boots {
            let runs = boot.runs.iter().filter(|run| !is_over(run.run));
            let runs: Vec<f64> = runs.map(|run| self.run_s(boot, run)).collect();
            let sum: f64 = runs.iter().sum();
            let nested = experiment.topologies[boot.topology].nested.is_some();
            match (runs.is_empty(), boot.virtual_time) {
                (true, _) => {}
                (false, true) => {
                    virtual_s += sum;
                    longest_s = runs.iter().copied().fold(longest_s, f64::max);
                }
                (false, false) => real_s += sum + self.boot_s(nested),
            }
        }
        real_s + longest_s.max(virtual_s / lanes.max(1) as f64)
    }

    fn run_s(&self, boot: &PlannedBoot, run: &PlannedRun) -> f64 {
        let default = if boot.virtual_time { VIRTUAL_RUN_DEFAULT_S } else { RUN_DEFAULT_S };
        self.seconds.get(&run_key(boot, run)).copied().unwrap_or(default)
    }

    fn boot_s(&self, nested: bool) -> f64 {
        let default = if nested { NESTED_BOOT_DEFAULT_S } else { BOOT_DEFAULT_S };
        self.seconds.get(&boot_key(nested)).copied().unwrap_or(default)
    }
}

fn boot_key(nested: bool) -> String {
    format!("boot nested={nested}")
}

/// In virtual time, a run takes longer on more pCPUs, so the key contains the topology.
fn run_key(boot: &PlannedBoot, run: &PlannedRun) -> String {
    let workload = &run.cell.workload;
    match boot.virtual_time {
        true => format!("vt run {workload} {}", run.cell.topology),
        false => format!("run {workload}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::experiment::plan;

    #[test]
    fn the_last_runs_in_virtual_time_take_as_long_on_many_lanes_as_on_few() {
        let text = "name = \"x\"\ntitle = \"x\"\nabout = \"x\"\nrepeats = 4\naccel = \"vt\"\n\
             kernels = [\"lab\"]\nschedulers = [\"stock\"]\nworkloads = [\"stress-ng-rename\"]\n\
             [[topology]]\nname = \"2:1\"\nvcpus = 4\npcpus = 2\n";
        let experiment = Experiment::parse(Path::new("x.toml"), text).unwrap();
        let boots = plan(&experiment);
        let left_s = |lanes, over: u64| {
            Timings::default().estimate_s(&experiment, &boots, lanes, |run| run < over)
        };
        assert_eq!(left_s(2, 0), 2.0 * VIRTUAL_RUN_DEFAULT_S);
        assert_eq!([left_s(2, 3), left_s(8, 0)], [VIRTUAL_RUN_DEFAULT_S; 2]);
        assert_eq!(left_s(8, 4), 0.0);
    }
}
