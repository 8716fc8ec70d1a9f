//! Predicts what a command would carry out. It plans exactly as the command does, so both reject
//! the same input. It writes nothing into the output folder.

use std::collections::BTreeSet;

use serde::Serialize;

use super::executor;
use super::identity::{Plan, select};
use super::lanes::lanes;
use super::{LabError, Options, Progress, Timings, folder, prepare, store};
use crate::experiment::{Experiment, PlannedBoot, plan};

/// The remaining work. This is the format of `unspin lab run --dry-run --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outlook {
    /// Number of runs to carry out.
    pub runs: u64,
    /// Number of boots that these runs need.
    pub boots: u64,
    /// Estimated duration in seconds.
    pub expected_s: f64,
    /// Number of runs in the whole experiment.
    pub planned: u64,
    /// Number of selected runs that have results, in the output folder or in a folder from which
    /// results are taken over. It is 0 while a kernel or program is missing, because the runs'
    /// identities are then unknown.
    pub done: u64,
    /// Kernels and programs that must be built, downloaded or installed first.
    pub missing: Vec<String>,
}

/// Returns the number of an experiment's runs and their estimated duration in seconds if none is
/// done.
pub fn expected(experiment: &Experiment) -> (u64, f64) {
    let boots = plan(experiment);
    let runs = boots.iter().map(|boot| boot.runs.len() as u64).sum();
    let lanes = lanes(None, experiment);
    (runs, Timings::load().estimate_s(experiment, &boots, lanes, |_| false))
}

/// Predicts the remaining work of an experiment.
///
/// # Errors
/// The errors of [`execute`](super::execute) before the first boot.
pub fn look_ahead(
    experiment: &Experiment,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<Outlook, LabError> {
    let missing = prepare::missing(experiment)?;
    if missing.is_empty() {
        let (_prepared, plan, out) = executor::plan(experiment, options, progress)?;
        let done = store::done_in(&out, &experiment.name, options.taken_over_from(), &plan)?;
        let Plan { boots, names, .. } = plan;
        return Ok(outlook(experiment, options, (&boots, names.len() as u64), &done, missing));
    }
    // Without the kernel and the programs, the runs have no identity.
    folder::meta_of(&options.out, &experiment.name)?;
    prepare::check(experiment)?;
    let mut boots = plan(experiment);
    let planned = boots.iter().map(|boot| boot.runs.len() as u64).sum();
    select(&mut boots, planned, options.runs)?;
    Ok(outlook(experiment, options, (&boots, planned), &BTreeSet::new(), missing))
}

fn outlook(
    experiment: &Experiment,
    options: &Options,
    (boots, planned): (&[PlannedBoot], u64),
    done: &BTreeSet<u64>,
    missing: Vec<String>,
) -> Outlook {
    let is_done = |run: u64| done.contains(&run);
    let open = |boot: &PlannedBoot| boot.runs.iter().filter(|run| !is_done(run.run)).count();
    let selected: usize = boots.iter().map(|boot| boot.runs.len()).sum();
    let runs: usize = boots.iter().map(open).sum();
    let lanes = lanes(options.jobs, experiment);
    Outlook {
        runs: runs as u64,
        boots: boots.iter().filter(|boot| open(boot) > 0).count() as u64,
        expected_s: Timings::load().estimate_s(experiment, boots, lanes, is_done),
        planned,
        done: (selected - runs) as u64,
        missing,
    }
}

#[cfg(test)]
mod tests {
    use unspin_model::{Accel, Outcome};

    use super::super::store::tests::{Folder, record};
    use super::super::{Selection, Store};
    use super::*;

    #[test]
    fn finished_and_unselected_runs_are_not_left_to_do() {
        let Folder { bench, experiment, mut plan } = Folder::new(Accel::Tcg);
        let options = Options { out: bench.path("out"), ..Options::default() };
        let left = |plan: &Plan| {
            let done = store::done_in(&options.out, &experiment.name, &[], plan).unwrap();
            let boots = (&plan.boots[..], plan.names.len() as u64);
            let Outlook { runs, planned, done, .. } =
                outlook(&experiment, &options, boots, &done, Vec::new());
            (runs, planned, done)
        };
        assert_eq!(left(&plan), (4, 4, 0));
        assert!(!options.out.exists(), "looking writes nothing");
        let mut store = Store::open(&options.out, &experiment, &plan, "").unwrap();
        store.append(&record(&plan, 1, Outcome::Done { value: 1.0 })).unwrap();
        assert_eq!(left(&plan), (3, 4, 1));
        plan.select(Selection::Range(1, 2)).unwrap();
        assert_eq!(left(&plan), (1, 4, 1));
    }

    #[test]
    fn what_the_plan_refuses_is_refused() {
        let Folder { bench, experiment, plan } = Folder::new(Accel::Tcg);
        let out = bench.path("out");
        Store::open(&out, &experiment, &plan, "").unwrap();
        let before = std::fs::read(out.join("experiment.json")).unwrap();
        let other = Experiment { name: "another".into(), ..experiment.clone() };
        for refused in [
            store::done_in(&out, &other.name, &[], &plan).map(drop).unwrap_err(),
            Store::open(&out, &other, &plan, "").map(drop).unwrap_err(),
        ] {
            let text = refused.to_string();
            assert!(text.contains("experiment `x`, not of `another`"), "{text}");
            assert!(text.contains("--out"), "{text}");
        }
        assert_eq!(std::fs::read(out.join("experiment.json")).unwrap(), before);
        let mut boots = plan.boots;
        let beyond = select(&mut boots, 4, Selection::Range(3, 4)).unwrap_err();
        assert!(matches!(beyond, LabError::NotPlanned { last: 4, planned: 4 }), "{beyond}");
    }
}
