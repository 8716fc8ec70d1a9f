//! `unspin lab fuzz`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use unspin_lab::fuzz::{Control, Failure, Fuzz, NoResult, Plan, Report, fuzz};
use unspin_lab::interrupt;
use unspin_lab::run::{Bar, Options};
use unspin_model::class::Class;

use crate::failure::of_class;
use crate::out;

/// Test a guest scheduler with random steps in virtual time; failures are reproducible
///
/// A seed decides what happens in its guest within two seconds: loads of all kinds, limited and
/// frozen groups, vCPUs that go and come, a scheduler that is killed and started. A seed fails
/// where the scheduler ends by itself, a task waits for 3 s, the kernel complains or does not get
/// its own scheduler back. Its steps then run under the kernel's own scheduler, too (--controls):
/// where one of these runs fails in the same way, the failure does not count. Otherwise, steps that
/// it does not need are left out.
#[derive(clap::Args)]
pub struct Args {
    /// Seeds: N or FIRST-LAST
    #[arg(long, default_value = "0-99", value_parser = seeds)]
    seeds: RangeInclusive<u64>,
    /// The guest scheduler's command, or `stock` for the kernel's own
    #[arg(long, default_value = SCHEDULER, value_name = "CMD")]
    scheduler: String,
    /// Kernel: lab, lab-cvm, lab-es, lab:SOURCE, debian-cloud[:bookworm|:trixie] or a bzImage
    #[arg(long, default_value = KERNEL)]
    kernel: String,
    /// Where results go
    #[arg(long, short, default_value = "out/fuzz")]
    out: PathBuf,
    /// Guests at once [default: CPUs, at most memory / 1.5 GiB]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// Runs of a failing seed under the kernel's own scheduler, at most
    #[arg(long, default_value_t = 10, value_name = "N")]
    controls: u32,
    /// Number of failing seeds for which to look for the shortest plan
    #[arg(long, default_value_t = 3, value_name = "N")]
    shrink: usize,
    /// Print what the seeds do; run nothing
    #[arg(long)]
    plan: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const SCHEDULER: &str = "unspin run";
const KERNEL: &str = "debian-cloud";
/// Maximum number of seeds in one command.
const MOST: u64 = 100_000;

fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last && last - first < MOST => Ok(first..=last),
        _ => Err(format!("expected a seed, or a range such as `0-99` of {MOST} seeds at most")),
    }
}

/// The planned steps of a seed.
#[derive(Serialize)]
struct PlannedSeed {
    seed: u64,
    topology: &'static str,
    steps: Vec<String>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.plan {
        print_plans(args.seeds, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let scheduler = match args.scheduler.trim() {
        "stock" => Vec::new(),
        command => command.split_whitespace().map(str::to_owned).collect(),
    };
    if scheduler.is_empty() && args.scheduler.trim() != "stock" {
        return Err(of_class(Class::Usage, "--scheduler: expected a command, or `stock`"));
    }
    let again = again(&args.scheduler, &args.kernel);
    interrupt::install()?;
    let Args { seeds, kernel, controls, shrink, .. } = args;
    let what = Fuzz { seeds, scheduler, kernel, controls, shrink };
    let options = Options { out: args.out, jobs: args.jobs, ..super::options() };
    let report = fuzz(&what, &options, &mut Bar::new())?;
    if report.interrupted {
        let text = format!(
            "interrupted after {} of {} seeds, which are kept: the same command goes on",
            report.seeds, report.planned
        );
        return Err(of_class(Class::Interrupted, text));
    }
    if args.json {
        out::json(1, None, &report)?;
    } else {
        out::text(in_words(&report, &again))?;
    }
    let fails = report.failures.iter().any(Failure::is_the_schedulers);
    let passes = !fails && report.no_result.is_empty();
    Ok(if passes { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_plans(seeds: RangeInclusive<u64>, json: bool) -> anyhow::Result<()> {
    let plan = |seed| {
        let Plan { topology, steps } = Plan::of(seed);
        let steps = steps.iter().map(ToString::to_string).collect();
        PlannedSeed { seed, topology: topology.name, steps }
    };
    if json {
        return out::json_list(1, "seeds", &seeds.map(plan).collect::<Vec<_>>());
    }
    seeds.map(plan).try_for_each(|PlannedSeed { seed, topology, steps }| {
        out::line(format_args!("seed {seed}, {topology}"))?;
        steps.iter().try_for_each(|step| out::line(format_args!("  {step}")))
    })
}

/// Returns the command that repeats a seed, without the seed's number.
fn again(scheduler: &str, kernel: &str) -> String {
    let mut command = "unspin lab fuzz".to_owned();
    if scheduler != SCHEDULER {
        command += &format!(" --scheduler '{scheduler}'");
    }
    if kernel != KERNEL {
        command += &format!(" --kernel {kernel}");
    }
    command + " --seeds"
}

fn in_words(report: &Report, again: &str) -> String {
    let Report { seeds, longest_wait_s, failures, no_result, .. } = report;
    let mut text = failures.iter().map(|one| failure(one, again)).collect::<String>();
    let (its, kernels): (Vec<_>, Vec<_>) = failures.iter().partition(|one| one.is_the_schedulers());
    text += &format!("{} of {seeds} seeds failed", its.len());
    if !kernels.is_empty() {
        let count = kernels.len();
        text += &format!(", and {count} in a way that the kernel's scheduler does, too");
    }
    text += &format!(
        "; in the others the longest wait of a task was {longest_wait_s:.2} s of virtual time\n"
    );
    for NoResult { seed, why } in no_result {
        text += &format!("seed {seed} has no result, because its host failed: {why}\n");
    }
    if !no_result.is_empty() {
        text += "the same command runs seeds without a result again\n";
    }
    text
}

fn failure(failure: &Failure, again: &str) -> String {
    let Failure { seed, topology, what, steps, shortest, stock, .. } = failure;
    let count = steps.len();
    let mut text = format!("seed {seed}, {topology}: {what}\n");
    if let Some(Control { runs, failed }) = stock {
        text += &format!("  under the kernel's scheduler, {failed} of {runs} runs fail so, too\n");
    }
    let lines = match shortest {
        Some(few) => {
            text += &format!("  {} of its {count} steps are enough:\n", few.len());
            few
        }
        None => steps,
    };
    lines.iter().for_each(|line| text += &format!("  {line}\n"));
    text += &format!("  again: {again} {seed}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_or_a_range() {
        assert_eq!(seeds("7"), Ok(7..=7));
        assert_eq!(seeds("0-99"), Ok(0..=99));
        for wrong in ["", "9-3", "x", "0-", "-5", "0-100000"] {
            assert!(seeds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_failure_says_how_to_see_it_again() {
        let steps =
            vec!["   0 ms  stress plain futex 4".to_owned(), "  90 ms  forks 20".to_owned()];
        let failed = Failure {
            seed: 17,
            topology: "4-on-2",
            what: "a task was kept waiting for 3 s".into(),
            detail: String::new(),
            shortest: Some(steps[..1].to_vec()),
            steps,
            stock: Some(Control { runs: 10, failed: 0 }),
        };
        let kernels = Failure {
            seed: 18,
            stock: Some(Control { runs: 10, failed: 3 }),
            shortest: Some(Vec::new()),
            ..failed.clone()
        };
        let report = Report {
            seeds: 100,
            planned: 100,
            longest_wait_s: 0.25,
            failures: vec![failed, kernels],
            no_result: Vec::new(),
            interrupted: false,
        };
        assert_eq!(
            in_words(&report, &again("scx_bpfland -k", KERNEL)),
            "seed 17, 4-on-2: a task was kept waiting for 3 s\n  under the kernel's scheduler, 0 \
             of 10 runs fail so, too\n  1 of its 2 steps are enough:\n  \
             \u{20}  0 ms  stress plain futex 4\n  again: unspin lab fuzz --scheduler \
             'scx_bpfland -k' --seeds 17\nseed 18, 4-on-2: a task was kept waiting for 3 s\n  \
             under the kernel's scheduler, 3 of 10 runs fail so, too\n  0 of its 2 steps are \
             enough:\n  again: unspin lab fuzz --scheduler 'scx_bpfland -k' --seeds 18\n1 of 100 \
             seeds failed, and 1 in a way that the kernel's scheduler does, too; in the others \
             the longest wait of a task was 0.25 s of virtual time\n"
        );
    }

    #[test]
    fn a_seed_without_a_result_does_not_count_as_failed() {
        let report = Report {
            seeds: 1,
            planned: 2,
            longest_wait_s: 0.25,
            failures: Vec::new(),
            no_result: vec![NoResult { seed: 3, why: "QemuDied: signal 9".into() }],
            interrupted: false,
        };
        let text = in_words(&report, "again");
        assert!(text.starts_with("0 of 1 seeds failed;"), "{text}");
        let (_, without) = text.split_once("seed 3 has no result").unwrap();
        assert!(without.contains("QemuDied: signal 9\nthe same command"), "{text}");
    }
}
