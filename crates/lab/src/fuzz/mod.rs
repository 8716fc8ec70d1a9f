//! Random steps under a guest scheduler, in virtual time: a seed decides them, so a failing one
//! fails again, however busy the machine is, and can be made shorter.
//!
//! A seed's steps start and end loads of all kinds, limit and freeze groups, take vCPUs away and
//! end the scheduler, in guests that have more vCPUs than pCPUs. At the end the scheduler must be
//! there, no task may have waited for three seconds, the kernel must have complained of nothing,
//! and it must get its own scheduler back.
//!
//! Where vCPUs spin for each other, tasks wait for seconds under the kernel's scheduler, too. So
//! the steps of a seed that fails are run under that one as well, several times.

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
/// How many of the runs under the kernel's scheduler are begun at a time.
const CONTROLS_AT_ONCE: u32 = 2;

/// What to try.
#[derive(Debug, Clone)]
pub struct Fuzz {
    /// The seeds.
    pub seeds: RangeInclusive<u64>,
    /// The guest scheduler's command; the kernel's own scheduler where it is empty.
    pub scheduler: Vec<String>,
    /// Kernel spec.
    pub kernel: String,
    /// How often the steps of a failing seed are run under the kernel's scheduler, until one run
    /// fails in the same way. With six vCPUs on three pCPUs beside a greedy neighbour, one such run
    /// in five collapsed: of ten, one does in nine cases of ten.
    pub controls: u32,
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
    /// The same steps under the kernel's scheduler; `None` where that is the one tested, cannot
    /// fail so, or was not to be run.
    pub stock: Option<Control>,
}

impl Failure {
    /// Whether the kernel's scheduler alone never failed so.
    pub fn is_the_schedulers(&self) -> bool {
        self.stock.is_none_or(|stock| stock.failed == 0)
    }
}

/// What a failing seed's steps come to under the kernel's scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Control {
    /// Runs, each with its own course of events.
    pub runs: u32,
    /// How many of them failed in the same way.
    pub failed: u32,
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
    let (finish, found) = fuzz.run(NAME, &plans, 1, options, progress)?;
    let mut report = Report {
        seeds: found.len() as u64,
        planned: plans.len() as u64,
        longest_wait_s: found
            .values()
            .flatten()
            .filter_map(|one| one.as_ref().ok())
            .copied()
            .fold(0.0, f64::max),
        failures: Vec::new(),
        interrupted: finish == Finish::Interrupted,
    };
    let mut shrunk = 0;
    for (seed, (name, plan)) in fuzz.seeds.clone().zip(&plans) {
        let Some(Err((what, detail))) = found.get(name).and_then(|runs| runs.first()) else {
            continue;
        };
        let mut failure = Failure {
            seed,
            topology: plan.topology.name,
            what: what.clone(),
            detail: detail.clone(),
            steps: lines(plan),
            shortest: None,
            stock: None,
        };
        let has_control = !fuzz.scheduler.is_empty() && fuzz.controls > 0 && !is_its_own(detail);
        if !report.interrupted && has_control {
            let (finish, stock) = fuzz.control(name, plan, what, options, progress)?;
            report.interrupted |= finish == Finish::Interrupted;
            failure.stock = Some(stock);
        }
        if !report.interrupted && failure.is_the_schedulers() && shrunk < fuzz.shrink {
            shrunk += 1;
            let shortest = fuzz.shrink(name, plan, what, options, progress)?;
            failure.shortest = shortest.as_ref().map(lines);
        }
        report.failures.push(failure);
    }
    Ok(report)
}

fn name(seed: u64) -> String {
    format!("seed-{seed}")
}

fn lines(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(Step::to_string).collect()
}

/// A run's longest wait in seconds, or what failed and what the guest said.
type Judged = Result<f64, (String, String)>;

/// By plan, its runs.
type Found = BTreeMap<String, Vec<Judged>>;

/// Whether only a guest scheduler can fail so; guest.sh says it.
fn is_its_own(detail: &str) -> bool {
    detail.lines().any(|line| line == "only under a guest scheduler")
}

fn fails_so(judged: &Judged, what: &str) -> bool {
    matches!(judged, Err((why, _)) if why == what)
}

impl Fuzz {
    /// Carries out plans so many times, each a workload of an experiment in a folder of its own.
    fn run(
        &self,
        experiment: &str,
        plans: &[(String, Plan)],
        repeats: u32,
        options: &Options,
        progress: &mut (dyn Progress + Send),
    ) -> Result<(Finish, Found), LabError> {
        let out = options.out.join(experiment);
        let folder = out.join("files");
        let file = files::write(&folder, experiment, self, plans, repeats)?;
        let experiment = Experiment::load(&file.display().to_string())?;
        let options = Options { out: out.clone(), ..options.clone() };
        let (finish, _) = execute(&experiment, &options, progress)?;
        Ok((finish, found(&out)?))
    }

    /// The same plan under the kernel's scheduler, until it fails in the same way.
    fn control(
        &self,
        name: &str,
        plan: &Plan,
        what: &str,
        options: &Options,
        progress: &mut (dyn Progress + Send),
    ) -> Result<(Finish, Control), LabError> {
        let note = format!("{name} fails: {what}; the same steps under the kernel's scheduler");
        progress.event(Event::Note(&note));
        let alone = Fuzz { scheduler: Vec::new(), ..self.clone() };
        let experiment = format!("{name}-stock");
        let plans = [(name.to_owned(), plan.clone())];
        let mut repeats = 0;
        loop {
            repeats = self.controls.min(repeats + CONTROLS_AT_ONCE);
            let (finish, found) = alone.run(&experiment, &plans, repeats, options, progress)?;
            let runs = found.get(name).map_or(&[][..], Vec::as_slice);
            let failed = runs.iter().filter(|run| fails_so(run, what)).count() as u32;
            if failed > 0 || repeats >= self.controls || finish == Finish::Interrupted {
                return Ok((finish, Control { runs: runs.len() as u32, failed }));
            }
        }
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
            let (finish, found) = self.run(name, &tried, 1, options, progress)?;
            interrupted |= finish == Finish::Interrupted;
            let fails = |(name, _): &(String, Plan)| {
                let run = found.get(name).and_then(|runs| runs.first());
                run.is_some_and(|run| fails_so(run, what)) && !interrupted
            };
            Ok::<_, LabError>(tried[first..].iter().map(fails).collect())
        })?;
        Ok((!interrupted).then_some(shortest))
    }
}

/// What the runs of a folder came to.
fn found(out: &Path) -> Result<Found, LabError> {
    let mut found = Found::new();
    for record in load(out)?.records {
        found.entry(record.cell.workload.clone()).or_default().push(judged(&record));
    }
    Ok(found)
}

fn judged(record: &RunRecord) -> Judged {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_a_guest_scheduler_fails_by_is_marked_by_the_script() {
        assert!(is_its_own("exit code 1\nonly under a guest scheduler\nfailed: it ended\n"));
        assert!(!is_its_own("exit code 1\nfailed: a task was kept waiting for 3 s\n"));
        let script = include_str!("guest.sh");
        assert!(script.contains("echo \"only under a guest scheduler\"\n"));
    }
}
