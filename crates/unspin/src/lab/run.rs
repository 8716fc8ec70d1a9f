//! `unspin lab run`.

use std::path::PathBuf;
use std::process::ExitCode;

use unspin_lab::experiment::{Experiment, plan};
use unspin_lab::interrupt;
use unspin_lab::run::{Bar, Finish, Options, Timings, execute};
use unspin_model::Accel;

/// Run an experiment, or go on with one that was interrupted.
#[derive(clap::Args)]
pub struct Args {
    /// A shipped experiment's name, or a file
    experiment: String,
    /// Where results go [default: out/NAME]
    #[arg(long, short)]
    out: Option<PathBuf>,
    /// Force an accelerator instead of trying
    #[arg(long, value_parser = accel)]
    accel: Option<Accel>,
    /// Use this kernel instead of the experiment's: lab, debian-cloud or a bzImage
    #[arg(long)]
    kernel: Option<String>,
    /// Run each cell so often
    #[arg(long)]
    repeats: Option<u32>,
    /// Say how many runs there are and how long they will take; run nothing
    #[arg(long)]
    dry_run: bool,
}

fn accel(text: &str) -> Result<Accel, String> {
    match text {
        "kvm" => Ok(Accel::Kvm),
        "tcg" => Ok(Accel::Tcg),
        _ => Err("expected `kvm` or `tcg`".into()),
    }
}

/// Does it.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut experiment = Experiment::load(&args.experiment)?;
    if let Some(kernel) = args.kernel {
        experiment.kernels = vec![kernel];
    }
    if let Some(repeats) = args.repeats {
        experiment.repeats = repeats;
    }
    let boots = plan(&experiment);
    if args.dry_run {
        let runs: usize = boots.iter().map(|boot| boot.runs.len()).sum();
        let seconds = Timings::load().estimate_s(&experiment, &boots, |_| false);
        println!("{runs} runs in {} boots, about {seconds:.0} s", boots.len());
        return Ok(ExitCode::SUCCESS);
    }
    interrupt::install()?;
    let out = args.out.unwrap_or_else(|| PathBuf::from("out").join(&experiment.name));
    let options = Options { out, accel: args.accel };
    match execute(&experiment, &options, &mut Bar::new())? {
        Finish::Complete => Ok(ExitCode::SUCCESS),
        Finish::Interrupted => {
            eprintln!("interrupted; the finished runs are kept: run the same command to go on");
            Ok(ExitCode::FAILURE)
        }
    }
}
