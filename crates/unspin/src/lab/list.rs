//! `unspin lab list`.

use std::process::ExitCode;

use serde::Serialize;
use unspin_lab::experiment::Experiment;
use unspin_lab::run::{duration, expected};
use unspin_lab::workload;

use crate::out;

/// List the experiments that are shipped, or the workloads
#[derive(clap::Args)]
pub struct Args {
    /// Which of them
    #[arg(value_enum, default_value_t = What::Experiments)]
    what: What,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// What `unspin lab run` carries out
    Experiments,
    /// What an experiment's guests run
    Workloads,
}

/// A shipped experiment.
#[derive(Serialize)]
struct ListedExperiment {
    name: &'static str,
    title: String,
    about: String,
    runs: u64,
    /// Estimated duration of all runs, in seconds.
    expected_s: f64,
}

/// A shipped workload.
#[derive(Serialize)]
struct ListedWorkload {
    name: &'static str,
    title: String,
    stresses: String,
    /// Debian packages that contain the workload's programs.
    packages: Vec<String>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Experiments => {
            let all = experiments()?;
            if args.json {
                out::json_list(1, "experiments", &all)?;
            } else {
                all.iter().try_for_each(print_experiment)?;
                out::line("\nunspin lab run NAME runs one; unspin lab list workloads has more.")?;
            }
        }
        What::Workloads => {
            let all = workloads();
            if args.json {
                out::json_list(1, "workloads", &all)?;
            } else {
                all.iter().try_for_each(print_workload)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn experiments() -> anyhow::Result<Vec<ListedExperiment>> {
    let list = |name: &'static str| {
        let experiment = Experiment::load(name)?;
        let (runs, expected_s) = expected(&experiment);
        let Experiment { title, about, .. } = experiment;
        Ok(ListedExperiment { name, title, about, runs, expected_s })
    };
    Experiment::builtin_names().map(list).collect()
}

fn workloads() -> Vec<ListedWorkload> {
    let list = |name| {
        let workload::Workload { title, stresses, packages, .. } = workload::builtin(name)?;
        Some(ListedWorkload { name, title, stresses, packages })
    };
    workload::builtin_names().filter_map(list).collect()
}

fn print_experiment(listed: &ListedExperiment) -> anyhow::Result<()> {
    let ListedExperiment { name, title, runs, expected_s, .. } = listed;
    out::line(format_args!("{name}: {runs} runs, about {}", duration(*expected_s)))?;
    out::line(format_args!("    {title}"))
}

fn print_workload(listed: &ListedWorkload) -> anyhow::Result<()> {
    out::line(format_args!("{}\n    {}", listed.name, listed.title))
}
