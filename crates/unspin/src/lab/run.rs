//! `unspin lab run`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use unspin_lab::experiment::Experiment;
use unspin_lab::interrupt;
use unspin_lab::run::{
    Bar, Finish, Options, Outlook, Published, Selection, duration, execute, load, look_ahead,
};
use unspin_model::Accel;
use unspin_model::class::Class;

use super::report;
use crate::failure::of_class;
use crate::out;

/// Run an experiment, or resume one that was interrupted
#[derive(clap::Args)]
pub struct Args {
    /// A shipped experiment's name, or a file
    experiment: String,
    /// Where results go [default: out/NAME]
    #[arg(long, short)]
    out: Option<PathBuf>,
    /// Accelerator: `kvm`, `tcg` or `vt` [default: the experiment's, else `vt` if it can run there]
    #[arg(long, value_parser = accel)]
    accel: Option<Accel>,
    /// Folder whose results in virtual time are taken over [default: results/NAME, if present]
    #[arg(long, value_name = "DIR")]
    reuse: Vec<PathBuf>,
    /// Folder whose runs in virtual time must have the same bytes; nothing is taken over then
    #[arg(long, value_name = "DIR", conflicts_with_all = ["reuse", "plan", "dry_run"])]
    verify: Option<PathBuf>,
    /// Kernel that replaces the experiment's: lab, lab-cvm, lab-es, lab:SOURCE,
    /// debian-cloud[:bookworm|:trixie] or a bzImage
    #[arg(long)]
    kernel: Option<String>,
    /// Number of runs of each cell; a larger number extends a finished experiment [default: the
    /// experiment's]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
    /// Runs in virtual time at once [default: CPUs, at most memory / 1.5 GiB]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// Carry out each run in virtual time twice; a run that does not give the same bytes fails
    #[arg(long, conflicts_with = "reuse")]
    twice: bool,
    /// Planned runs to carry out, by number: N or FIRST-LAST, from 0 [default: all]
    #[arg(long, value_name = "RANGE")]
    runs: Option<Selection>,
    /// Write the plan, with the number and the identity of each run, and run nothing
    #[arg(long, conflicts_with_all = ["runs", "dry_run"])]
    plan: bool,
    /// Say how many runs are left and how long they will take; run nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the summary, or the dry run, as JSON
    #[arg(long)]
    json: bool,
}

fn accel(text: &str) -> Result<Accel, String> {
    Accel::parse(text).ok_or_else(|| "expected `kvm`, `tcg` or `vt`".into())
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut experiment = Experiment::load(&args.experiment)?;
    if let Some(kernel) = args.kernel {
        experiment.kernels = vec![kernel];
    }
    if let Some(accel) = args.accel {
        experiment.force_accel(accel)?;
    }
    if let Some(repeats) = args.repeats {
        experiment.repeats = repeats;
    }
    interrupt::install()?;
    let out = args.out.unwrap_or_else(|| PathBuf::from("out").join(&experiment.name));
    let verify = args.verify.as_deref();
    if let Some(folder) = verify.filter(|folder| !folder.is_dir()) {
        let text = format!("--verify: {} is not a folder", folder.display());
        return Err(of_class(Class::Usage, text));
    }
    let published = match verify {
        Some(folder) => Published::open(folder, &experiment, &out)?,
        None => None,
    };
    let takes_over = verify.is_none() && args.reuse.is_empty();
    let reuse = if takes_over { own_results(&experiment.name) } else { args.reuse };
    let runs = if args.plan { Selection::Nothing } else { args.runs.unwrap_or_default() };
    let (accel, jobs, twice) = (args.accel, args.jobs, args.twice);
    let options = Options { out, accel, jobs, twice, reuse, runs, ..super::options() };
    if args.dry_run {
        dry_run(&look_ahead(&experiment, &options, &mut Bar::new())?, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (finish, out) = execute(&experiment, &options, &mut Bar::new())?;
    if args.plan {
        print_plan(&out, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let summary = report::write(&out)?;
    if finish == Finish::Interrupted {
        let (done, planned, next) = (summary.done, summary.planned, goes_on(twice));
        let text = format!("interrupted after {done} of {planned} runs, which are kept: {next}");
        return Err(of_class(Class::Interrupted, text));
    }
    report::print(&summary, &out, args.json)?;
    if let Some(folder) = verify {
        print_verdict(folder, published.as_ref(), &out, runs, args.json)?;
    }
    let complete = done(&out, runs)? == runs.count(summary.planned);
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns how to continue after Ctrl-C. `--twice` refuses a folder with results.
fn goes_on(twice: bool) -> &'static str {
    match twice {
        false => "the same command goes on",
        true => {
            "without `--twice` the same command goes on; with it, name another folder with `--out`"
        }
    }
}

/// Prints how the runs compare with the published ones, as the last line. With JSON, the line goes
/// to standard error.
fn print_verdict(
    folder: &Path,
    published: Option<&Published>,
    out: &Path,
    runs: Selection,
    json: bool,
) -> anyhow::Result<()> {
    let verdict = match published {
        Some(published) => published.compare(out, runs)?.verdict()?,
        None => format!("No runs are published in {}: nothing to compare.", folder.display()),
    };
    if json {
        note!("{verdict}");
        return Ok(());
    }
    out::line(verdict)
}

/// Returns the number of selected runs with a result.
fn done(out: &Path, runs: Selection) -> anyhow::Result<u64> {
    let loaded = load(out)?;
    let done = loaded.records.iter().filter(|record| record.observation().is_some());
    let numbers: BTreeSet<u64> = done.map(|record| record.run).collect();
    Ok(numbers.into_iter().filter(|run| runs.contains(*run)).count() as u64)
}

fn print_plan(out: &Path, json: bool) -> anyhow::Result<()> {
    let (planned, done) = (load(out)?.planned, done(out, Selection::All)?);
    if json {
        out::json(1, None, &serde_json::json!({"out": out, "planned": planned, "done": done}))
    } else {
        let path = out.join("experiment.json");
        out::line(format_args!("{}: {planned} runs are planned, {done} done", path.display()))
    }
}

/// Returns the experiment's committed results, if the working directory is a checkout.
fn own_results(name: &str) -> Vec<PathBuf> {
    let folder = PathBuf::from("results").join(name);
    if folder.join("runs.jsonl").is_file() { vec![folder] } else { Vec::new() }
}

fn dry_run(outlook: &Outlook, json: bool) -> anyhow::Result<()> {
    if json { out::json(1, None, outlook) } else { out::text(in_words(outlook)) }
}

/// Describes the remaining work, one statement per line.
fn in_words(outlook: &Outlook) -> String {
    let Outlook { runs, boots, expected_s, done, missing, .. } = outlook;
    let mut text = match (*runs, *done) {
        (0, _) => "nothing to do: each run has its result\n".to_owned(),
        _ => format!("{runs} runs in {boots} boots, about {}\n", duration(*expected_s)),
    };
    if *runs > 0 && *done > 0 {
        text += &format!("{done} more have their result\n");
    }
    if !missing.is_empty() {
        text += &format!(
            "made first, which takes more time: {}; runs that are done are known afterwards\n",
            missing.join(", ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn only_what_runs_once_goes_on_by_the_same_command() {
        assert_eq!(goes_on(false), "the same command goes on");
        assert!(goes_on(true).contains("another folder with `--out`"));
    }

    #[test]
    fn what_runs_twice_takes_nothing_over() {
        let twice = |line: &str| {
            let line = Line::try_parse_from(line.split(' '));
            line.is_ok_and(|line| line.args.twice)
        };
        assert!(twice("run demo --twice --out out/twice"));
        assert!(!twice("run demo --twice --reuse results/demo"));
    }

    #[test]
    fn a_dry_run_says_what_is_left_and_what_is_made_first() {
        let outlook = Outlook {
            runs: 3,
            boots: 2,
            expected_s: 40.0,
            planned: 8,
            done: 5,
            missing: vec!["kernel lab".into()],
        };
        let text = in_words(&outlook);
        assert!(text.starts_with("3 runs in 2 boots, about 40 s\n5 more have their"), "{text}");
        assert!(text.contains("made first, which takes more time: kernel lab;"), "{text}");
        let all = Outlook { runs: 0, boots: 0, missing: Vec::new(), ..outlook };
        assert_eq!(in_words(&all), "nothing to do: each run has its result\n");
    }
}
