//! Random steps under a guest scheduler, in virtual time: a seed decides them, so a failing one
//! fails again, however busy the machine is, and can be made shorter.
//!
//! A seed's steps start and end loads of all kinds, limit and freeze groups, take vCPUs away and
//! end the scheduler, in guests that have more vCPUs than pCPUs. At the end the scheduler must be
//! there, no task may have waited for three seconds, the kernel must have complained of nothing,
//! and it must get its own scheduler back.

mod files;
mod plan;
mod shrink;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use serde::Serialize;
use unspin_model::{Outcome, RunRecord};

use crate::experiment::Experiment;
use crate::run::{Event, Finish, LabError, Options, Progress, execute, load};

pub use plan::{Plan, Step};

/// The experiment of all seeds.
const NAME: &str = "fuzz";

/// What to try.
#[derive(Debug, Clone)]
pub struct Fuzz {
    /// The seeds.
    pub seeds: RangeInclusive<u64>,
    /// The guest scheduler's command; the kernel's own scheduler where it is empty.
    pub scheduler: Vec<String>,
    /// Kernel spec.
    pub kernel: String,
    /// Of how many failing seeds a shorter plan is looked for.
    pub shrink: usize,
}

/// What came out.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// How many seeds have a result.
    pub seeds: u64,
    /// How many of them are asked for.
    pub planned: u64,
    /// The longest that a task waited in a seed that did not fail, seconds.
    pub longest_wait_s: f64,
    /// Those that failed, in order.
    pub failures: Vec<Failure>,
    /// Whether it was interrupted.
    pub interrupted: bool,
}

/// A seed that failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Its machine.
    pub topology: &'static str,
    /// What failed, in words.
    pub what: String,
    /// What the guest said last.
    pub detail: String,
    /// Its steps.
    pub steps: Vec<String>,
    /// The steps of the shortest plan found that fails in the same way, where one was looked for.
    pub shortest: Option<Vec<String>>,
}

/// Runs all seeds, and looks for shorter plans of those that fail.
///
/// # Errors
/// Those of [`execute`].
pub fn fuzz(
    fuzz: &Fuzz,
    options: &Options,
    progress: &mut (dyn Progress + Send),
) -> Result<Report, LabError> {
    let plans: Vec<(String, Plan)> =
        fuzz.seeds.clone().map(|seed| (name(seed), Plan::of(seed))).collect();
    let (finish, found) = fuzz.run(NAME, &plans, options, progress)?;
    let mut report = Report {
        seeds: found.len() as u64,
        planned: plans.len() as u64,
        longest_wait_s: found
            .values()
            .filter_map(|one| one.as_ref().ok())
            .copied()
            .fold(0.0, f64::max),
        failures: Vec::new(),
        interrupted: finish == Finish::Interrupted,
    };
    for (seed, (name, plan)) in fuzz.seeds.clone().zip(&plans) {
        let Some(Err((what, detail))) = found.get(name) else { continue };
        let shortest = match report.failures.len() < fuzz.shrink && !report.interrupted {
            true => fuzz.shrink(name, plan, what, options, progress)?,
            false => None,
        };
        report.failures.push(Failure {
            seed,
            topology: plan.topology.name,
            what: what.clone(),
            detail: detail.clone(),
            steps: lines(plan),
            shortest: shortest.as_ref().map(lines),
        });
    }
    Ok(report)
}

fn name(seed: u64) -> String {
    format!("seed-{seed}")
}

fn lines(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(Step::to_string).collect()
}

/// By plan: the longest wait in seconds, or what failed and what the guest said.
type Found = BTreeMap<String, Result<f64, (String, String)>>;

impl Fuzz {
    /// Carries out plans, each a workload of an experiment in a folder of its own.
    fn run(
        &self,
        experiment: &str,
        plans: &[(String, Plan)],
        options: &Options,
        progress: &mut (dyn Progress + Send),
    ) -> Result<(Finish, Found), LabError> {
        let out = options.out.join(experiment);
        let folder = out.join("files");
        files::write(&folder, experiment, &self.kernel, &self.scheduler, plans)?;
        let file = folder.join(format!("{experiment}.toml"));
        let experiment = Experiment::load(&file.display().to_string())?;
        let options = Options { out: out.clone(), ..options.clone() };
        let (finish, _) = execute(&experiment, &options, progress)?;
        Ok((finish, found(&out)?))
    }

    /// The shortest plan found that fails like this one; `None` where it was interrupted.
    fn shrink(
        &self,
        name: &str,
        plan: &Plan,
        what: &str,
        options: &Options,
        progress: &mut (dyn Progress + Send),
    ) -> Result<Option<Plan>, LabError> {
        let note = format!("{name} fails: {what}; looking for a shorter plan");
        progress.event(Event::Note(&note));
        let mut tried: Vec<(String, Plan)> = Vec::new();
        let mut interrupted = false;
        let shortest = shrink::shrink(plan, |plans| {
            let first = tried.len();
            let named = |(index, plan): (usize, &Plan)| {
                (format!("{name}-shorter-{}", first + index), plan.clone())
            };
            tried.extend(plans.iter().enumerate().map(named));
            let (finish, found) = self.run(name, &tried, options, progress)?;
            interrupted |= finish == Finish::Interrupted;
            let fails = |(name, _): &(String, Plan)| {
                matches!(found.get(name), Some(Err((why, _))) if why == what) && !interrupted
            };
            Ok::<_, LabError>(tried[first..].iter().map(fails).collect())
        })?;
        Ok((!interrupted).then_some(shortest))
    }
}

/// What the runs of a folder came to.
fn found(out: &Path) -> Result<Found, LabError> {
    let records = load(out)?.records;
    Ok(records.into_iter().map(|record| (record.cell.workload.clone(), judged(&record))).collect())
}

fn judged(record: &RunRecord) -> Result<f64, (String, String)> {
    match &record.outcome {
        Outcome::Done { value } => Ok(*value),
        Outcome::DidNotFinish { limit_s } => {
            Err((format!("no end within {limit_s} s"), String::new()))
        }
        Outcome::Failed { kind, detail } => {
            let said = detail.lines().find_map(|line| line.strip_prefix("failed: "));
            let what = said.map_or_else(|| format!("{kind:?}"), str::to_owned);
            Err((what, detail.clone()))
        }
    }
}
