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
mod judged;
mod plan;
mod shrink;

use std::ops::RangeInclusive;

use serde::Serialize;

use crate::experiment::Experiment;
use crate::run::{Event, Finish, LabError, Options, Progress, execute};

use judged::{Found, Judged, found};
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
    /// Those whose host failed, in order.
    pub no_result: Vec<NoResult>,
    /// Whether it was interrupted.
    pub interrupted: bool,
}

/// A seed that nothing is known of, because its host failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NoResult {
    /// The seed.
    pub seed: u64,
    /// How the host failed.
    pub why: String,
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
    let mut report = report(&found, plans.len(), finish);
    let mut shrunk = 0;
    for (seed, (name, plan)) in fuzz.seeds.clone().zip(&plans) {
        let (what, detail) = match found.get(name).and_then(|runs| runs.first()) {
            Some(Judged::Failed { what, detail }) => (what, detail),
            Some(Judged::NoResult(why)) => {
                report.no_result.push(NoResult { seed, why: why.clone() });
                continue;
            }
            Some(Judged::Passed(_)) | None => continue,
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

/// What the seeds came to, before their failures are looked at one by one.
fn report(found: &Found, planned: usize, finish: Finish) -> Report {
    let runs = || found.values().flatten();
    let waits = runs().filter_map(|run| match run {
        Judged::Passed(wait_s) => Some(*wait_s),
        Judged::Failed { .. } | Judged::NoResult(_) => None,
    });
    Report {
        seeds: runs().filter(|run| run.is_result()).count() as u64,
        planned: planned as u64,
        longest_wait_s: waits.fold(0.0, f64::max),
        failures: Vec::new(),
        no_result: Vec::new(),
        interrupted: finish == Finish::Interrupted,
    }
}

fn name(seed: u64) -> String {
    format!("seed-{seed}")
}

fn lines(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(Step::to_string).collect()
}

/// Whether only a guest scheduler can fail so; guest.sh says it.
fn is_its_own(detail: &str) -> bool {
    detail.lines().any(|line| line == "only under a guest scheduler")
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
        match execute(&experiment, &options, progress) {
            Err(LabError::Interrupted) => {
                // The folder may not be there yet.
                Ok((Finish::Interrupted, found(&out).unwrap_or_default()))
            }
            ended => Ok((ended?.0, found(&out)?)),
        }
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
            let control = control(runs, what);
            if control.failed > 0 || repeats >= self.controls || finish == Finish::Interrupted {
                return Ok((finish, control));
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
        let mut tried = 0;
        let mut interrupted = false;
        let shortest = shrink::shrink(plan, |plans| {
            let new = candidates(name, &mut tried, plans);
            let (finish, found) = self.run(name, &new, 1, options, progress)?;
            interrupted |= finish == Finish::Interrupted;
            let fails = |(name, _): &(String, Plan)| {
                let run = found.get(name).and_then(|runs| runs.first());
                run.is_some_and(|run| run.fails_so(what)) && !interrupted
            };
            Ok::<_, LabError>(new.iter().map(fails).collect())
        })?;
        Ok((!interrupted).then_some(shortest))
    }
}

/// Runs of one plan under the kernel's scheduler, those left out whose host failed.
fn control(runs: &[Judged], what: &str) -> Control {
    let results = runs.iter().filter(|run| run.is_result());
    let failed = runs.iter().filter(|run| run.fails_so(what));
    Control { runs: results.count() as u32, failed: failed.count() as u32 }
}

/// Shorter plans under names of their own, numbered behind those that were tried before. Those
/// have their result, and one that failed would run again.
fn candidates(name: &str, tried: &mut usize, plans: &[Plan]) -> Vec<(String, Plan)> {
    let first = *tried;
    *tried += plans.len();
    let names = (first..).map(|number| format!("{name}-shorter-{number}"));
    names.zip(plans.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(what: &str) -> Judged {
        Judged::Failed { what: what.into(), detail: String::new() }
    }

    #[test]
    fn a_seed_whose_host_failed_has_no_result() {
        let no_result = || Judged::NoResult("QemuDied: signal 9".into());
        let runs = [Judged::Passed(0.5), failed("it waited"), no_result(), Judged::Passed(0.25)];
        let seeds = runs.into_iter().enumerate();
        let found: Found = seeds.map(|(seed, run)| (name(seed as u64), vec![run])).collect();
        let report = report(&found, 9, Finish::Complete);
        assert_eq!((report.seeds, report.planned, report.longest_wait_s), (3, 9, 0.5));
        let runs = [failed("it waited"), no_result(), failed("it panicked"), Judged::Passed(1.0)];
        assert_eq!(control(&runs, "it waited"), Control { runs: 3, failed: 1 });
    }

    #[test]
    fn only_plans_that_were_not_tried_are_candidates() {
        let mut tried = 0;
        let mut names = |plans: &[Plan]| -> Vec<String> {
            candidates("x", &mut tried, plans).into_iter().map(|(name, _)| name).collect()
        };
        let [one, two] = [Plan::of(1), Plan::of(2)];
        assert_eq!(names(&[one, two.clone()]), ["x-shorter-0", "x-shorter-1"]);
        assert_eq!(names(&[two]), ["x-shorter-2"]);
    }

    #[test]
    fn what_only_a_guest_scheduler_fails_by_is_marked_by_the_script() {
        assert!(is_its_own("exit code 1\nonly under a guest scheduler\nfailed: it ended\n"));
        assert!(!is_its_own("exit code 1\nfailed: a task was kept waiting for 3 s\n"));
        let script = include_str!("guest.sh");
        assert!(script.contains("echo \"only under a guest scheduler\"\n"));
    }
}
