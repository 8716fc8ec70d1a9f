//! Random steps under a guest scheduler, in virtual time. A seed decides the steps, so a failing
//! seed fails again however busy the machine is, and its plan can be shortened.
//!
//! The steps of a seed start and end loads of all kinds, limit and freeze cgroups, take vCPUs
//! offline and end the scheduler. The guests have more vCPUs than pCPUs. At the end, four
//! conditions must hold:
//!
//! - the guest scheduler is loaded,
//! - no task has waited for three seconds,
//! - the kernel has logged no complaint,
//! - the kernel gets its own scheduler back.
//!
//! If vCPUs spin for each other, tasks wait for seconds under the kernel's scheduler, too. The
//! steps of a failing seed are therefore repeated several times under the kernel's scheduler.

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

/// Name of the experiment that runs all seeds.
const NAME: &str = "fuzz";
/// Number of control runs that start together.
const CONTROLS_AT_ONCE: u32 = 2;

/// Options of a fuzzing session.
#[derive(Debug, Clone)]
pub struct Fuzz {
    /// The seeds to run.
    pub seeds: RangeInclusive<u64>,
    /// The guest scheduler's command; empty for the kernel's own scheduler.
    pub scheduler: Vec<String>,
    /// Kernel spec.
    pub kernel: String,
    /// Maximal number of control runs of a failing seed: its steps under the kernel's scheduler.
    /// They stop at the first run that fails in the same way. With six vCPUs on three pCPUs beside
    /// a greedy neighbour, one control run in five collapsed. Ten control runs therefore contain a
    /// collapse in nine cases of ten.
    pub controls: u32,
    /// Maximal number of failing seeds whose plans are shortened.
    pub shrink: usize,
}

/// The results of a fuzzing session.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Number of seeds that have a result.
    pub seeds: u64,
    /// Number of seeds to run.
    pub planned: u64,
    /// Longest wait of a task, in seconds, over the seeds that passed.
    pub longest_wait_s: f64,
    /// Seeds that failed, in order.
    pub failures: Vec<Failure>,
    /// Seeds whose host failed, in order.
    pub no_result: Vec<NoResult>,
    /// Whether the session was interrupted.
    pub interrupted: bool,
}

/// A seed without a result, because its host failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NoResult {
    /// The seed.
    pub seed: u64,
    /// Reason of the host's failure.
    pub why: String,
}

/// A seed that failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Name of its topology.
    pub topology: &'static str,
    /// Description of the failure.
    pub what: String,
    /// Last messages of the guest.
    pub detail: String,
    /// Its steps.
    pub steps: Vec<String>,
    /// Steps of the shortest plan found that fails in the same way; `None` if no search was made.
    pub shortest: Option<Vec<String>>,
    /// Results of the same steps under the kernel's scheduler. `None` if the fuzzed scheduler is
    /// the kernel's own, if only a guest scheduler can fail this way, or if no control runs were
    /// made.
    pub stock: Option<Control>,
}

impl Failure {
    /// Returns whether no control run failed in the same way.
    pub fn is_the_schedulers(&self) -> bool {
        self.stock.is_none_or(|stock| stock.failed == 0)
    }
}

/// Results of a failing seed's steps under the kernel's scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Control {
    /// Number of control runs, each with a different course of events.
    pub runs: u32,
    /// Number of control runs that failed in the same way.
    pub failed: u32,
}

/// Runs all seeds and shortens the plans of those that fail.
///
/// # Errors
/// The errors of [`execute`].
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

/// Reports the seeds' results. The caller adds the failures.
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

/// Returns whether only a guest scheduler can fail this way. guest.sh prints the line.
fn is_its_own(detail: &str) -> bool {
    detail.lines().any(|line| line == "only under a guest scheduler")
}

impl Fuzz {
    /// Carries out each plan `repeats` times, as workloads of one experiment in its own folder.
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
                // The folder may not exist yet.
                Ok((Finish::Interrupted, found(&out).unwrap_or_default()))
            }
            ended => Ok((ended?.0, found(&out)?)),
        }
    }

    /// Repeats the plan under the kernel's scheduler until a run fails in the same way.
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

    /// Returns the shortest plan found that fails in the same way, or `None` after an interruption.
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

/// Counts the control runs of one plan, without runs whose host failed.
fn control(runs: &[Judged], what: &str) -> Control {
    let results = runs.iter().filter(|run| run.is_result());
    let failed = runs.iter().filter(|run| run.fails_so(what));
    Control { runs: results.count() as u32, failed: failed.count() as u32 }
}

/// Gives shorter plans their own names, numbered after the plans that were tried before. A name
/// must not be reused: its plan has a result, and if that is a failure, it would run again.
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
