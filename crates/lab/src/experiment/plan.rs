//! The order of runs. A block runs every cell once, so drift of the machine affects all cells
//! alike. The boots within a block and the runs within a boot are in random order.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use unspin_model::Cell;

use super::{Experiment, Scheduler};

/// A run of the plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedRun {
    /// Number of the run: block x number of cells + number of the cell. The number depends on
    /// neither seed nor repeats, so an experiment can be extended.
    pub run: u64,
    /// The run's cell.
    pub cell: Cell,
    /// The cell's guest scheduler.
    pub scheduler: Scheduler,
    /// Index of the cell's workload in the experiment.
    pub workload: usize,
}

/// A boot, with the runs that share it.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedBoot {
    /// Number of the block.
    pub block: u32,
    /// Whether the boot runs in virtual time. Such a boot has one run.
    pub virtual_time: bool,
    /// Index of the topology in the experiment.
    pub topology: usize,
    /// Index of the kernel in the experiment.
    pub kernel: usize,
    /// Index of the boot parameters in the experiment.
    pub boot_params: usize,
    /// The runs, in order.
    pub runs: Vec<PlannedRun>,
}

/// Returns all boots of an experiment in the order in which they are carried out.
pub fn plan(experiment: &Experiment) -> Vec<PlannedBoot> {
    let cells = boots_of_a_block(experiment);
    let per_block: u64 = cells.iter().map(|boot| boot.runs.len() as u64).sum();
    let mut all = Vec::new();
    for block in 0..experiment.repeats {
        let mut rng = Pcg64::seed_from_u64(experiment.seed ^ (u64::from(block) << 32));
        let mut boots = cells.clone();
        for boot in &mut boots {
            boot.block = block;
            for run in &mut boot.runs {
                run.run += u64::from(block) * per_block;
            }
            shuffle_runs(&mut boot.runs, &mut rng);
        }
        let alone = |boot: &PlannedBoot| match experiment.fresh_boots || boot.virtual_time {
            true => one_run_each(boot),
            false => vec![boot.clone()],
        };
        boots = boots.iter().flat_map(alone).collect();
        boots.shuffle(&mut rng);
        all.extend(boots);
    }
    all
}

fn boots_of_a_block(experiment: &Experiment) -> Vec<PlannedBoot> {
    let mut boots = Vec::new();
    let mut run = 0;
    for (topology, place) in experiment.topologies.iter().enumerate() {
        for (kernel, kernel_name) in experiment.kernels.iter().enumerate() {
            for (boot_params, params) in experiment.boot_params.iter().enumerate() {
                let mut runs = Vec::new();
                for scheduler in experiment.schedulers_in(place) {
                    let all = experiment.workloads.iter().enumerate();
                    for (workload, what) in all.filter(|(_, w)| place.has_workload(&w.name)) {
                        let cell = Cell {
                            topology: place.name.clone(),
                            kernel: kernel_name.clone(),
                            boot_params: params.clone(),
                            scheduler: scheduler.name(),
                            workload: what.name.clone(),
                        };
                        runs.push(PlannedRun { run, cell, scheduler: scheduler.clone(), workload });
                        run += 1;
                    }
                }
                let virtual_time = place.in_virtual_time();
                boots.push(PlannedBoot {
                    block: 0,
                    virtual_time,
                    topology,
                    kernel,
                    boot_params,
                    runs,
                });
            }
        }
    }
    boots
}

/// Shuffles the runs of a boot. The runs of a loaded scheduler stay together, because loading it
/// can take longer than a run. Runs under the kernel's scheduler (stock, tuned, hold) are mixed
/// freely.
fn shuffle_runs(runs: &mut [PlannedRun], rng: &mut Pcg64) {
    runs.shuffle(rng);
    let group = |run: &PlannedRun| match &run.scheduler {
        Scheduler::Command(command) => command.name.clone(),
        _ => String::new(),
    };
    let mut groups: Vec<String> = Vec::new();
    for run in runs.iter() {
        if !groups.contains(&group(run)) {
            groups.push(group(run));
        }
    }
    groups.shuffle(rng);
    runs.sort_by_key(|run| groups.iter().position(|name| *name == group(run)));
}

fn one_run_each(boot: &PlannedBoot) -> Vec<PlannedBoot> {
    let alone = |run: &PlannedRun| PlannedBoot { runs: vec![run.clone()], ..boot.clone() };
    boot.runs.iter().map(alone).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    use super::*;

    fn experiment(extra: &str) -> Experiment {
        let text = format!(
            r#"
name = "sample"
title = "A sample"
about = "What?"
repeats = 3
kernels = ["lab"]
schedulers = ["stock", "hold:2", "hold:1", "scx_a"]
command = [{{ name = "scx_a", argv = ["scx_a"] }}]
workloads = ["stress-ng-rename", "stress-ng-dentry"]
{extra}
[[topology]]
name = "1:1"
vcpus = 2
pcpus = 2
[[topology]]
name = "2:1"
vcpus = 4
pcpus = 2
"#
        );
        Experiment::parse(Path::new("x.toml"), &text).unwrap()
    }

    #[test]
    fn every_cell_runs_once_in_every_block() {
        let boots = plan(&experiment(""));
        let mut count: BTreeMap<(u32, Cell), u32> = BTreeMap::new();
        let mut numbers = BTreeSet::new();
        for boot in &boots {
            for run in &boot.runs {
                *count.entry((boot.block, run.cell.clone())).or_default() += 1;
                assert!(numbers.insert(run.run), "run {} twice", run.run);
            }
        }
        // 1:1 has no hold:2 (all of its vCPUs): (3 + 4) schedulers x 2 workloads x 3 blocks.
        assert_eq!(count.len(), 42);
        assert!(count.values().all(|n| *n == 1));
    }

    #[test]
    fn a_seed_gives_one_order_and_loaded_schedulers_stay_together() {
        assert_eq!(plan(&experiment("seed = 7")), plan(&experiment("seed = 7")));
        assert_ne!(plan(&experiment("seed = 7")), plan(&experiment("seed = 8")));
        for boot in plan(&experiment("accel = \"real\"")) {
            let loaded: Vec<bool> = boot.runs.iter().map(|r| r.cell.scheduler == "scx_a").collect();
            let changes = loaded.windows(2).filter(|pair| pair[0] != pair[1]).count();
            assert_eq!(changes, 1, "{loaded:?}");
        }
    }

    #[test]
    fn in_virtual_time_every_run_has_its_boot() {
        let boots = plan(&experiment("accel = \"vt\""));
        assert!(boots.iter().all(|boot| boot.virtual_time && boot.runs.len() == 1));
    }

    #[test]
    fn fresh_boots_have_one_run_each() {
        assert!(
            plan(&experiment("accel = \"real\"\nfresh_boots = true"))
                .iter()
                .all(|boot| boot.runs.len() == 1)
        );
    }
}
