//! `unspin run`.

use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use unspin_guest::run::{Options, Rule, Scheduler};
use unspin_lab::interrupt;
use unspin_model::scheduler::Stats;
use unspin_report::scheduler;

use crate::out;

/// Run the guest scheduler until Ctrl-C, or around a command. It keeps tasks on as few
/// vCPUs as do the most useful work, where the host takes others away while locks are held.
/// The kernel takes its own scheduler again when this ends, however it ends. Needs root.
#[derive(clap::Args)]
pub struct Args {
    /// What decides how many vCPUs are used
    #[arg(long, value_enum, value_name = "RULE", default_value_t = Pack::Waste)]
    pack: Pack,
    /// Use all vCPUs always
    #[arg(long, conflicts_with = "pack")]
    no_pack: bool,
    /// Leave each task in the queue of the vCPU where it was
    #[arg(long)]
    no_place: bool,
    /// Treat holders of locks that others wait for like other tasks
    #[arg(long)]
    no_handoff: bool,
    /// Let the kernel's spinners spin though the owner's vCPU is off
    #[arg(long)]
    no_adaptive_spin: bool,
    /// Milliseconds that a task runs before others get their turn
    #[arg(long, value_name = "MS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    slice: u64,
    /// Print the figures every so many seconds
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    stats: Option<u64>,
    /// Print figures as JSON, one line each
    #[arg(long)]
    json: bool,
    /// A command to run meanwhile, with its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Pack {
    /// Fewer where they get more useful work done
    Waste,
    /// One fewer or one more each second by the time that is lost, as Linux 7.4's
    /// steal_governor: a baseline to compare with
    StealGovernor,
}

impl Args {
    fn rule(&self) -> Rule {
        match self.pack {
            _ if self.no_pack => Rule::Never,
            Pack::Waste => Rule::Waste,
            Pack::StealGovernor => Rule::StealGovernor,
        }
    }
}

const PAUSE: Duration = Duration::from_millis(50);

/// Does it.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    interrupt::install()?;
    let slice_ns = args.slice * 1_000_000;
    let options = Options {
        slice_ns,
        pack: args.rule(),
        place: !args.no_place,
        handoff: !args.no_handoff,
        adaptive_spin: !args.no_adaptive_spin,
        ..Options::of_this_machine()
    };
    let mut scheduler = Scheduler::start(&options)?;
    let started = Instant::now();
    if !args.json {
        eprintln!("unspin: the guest scheduler runs, Ctrl-C ends it");
    }
    let mut child = start(&args.command)?;
    let mut next = args.stats.map(|seconds| started + Duration::from_secs(seconds));
    let mut code = ExitCode::SUCCESS;
    while !interrupt::requested() {
        std::thread::sleep(PAUSE);
        if let Some(status) = child.as_mut().map(Child::try_wait).transpose()?.flatten() {
            code = ExitCode::from(status.code().map_or(1, |code| code as u8));
            break;
        }
        if let Some(ended) = scheduler.ended() {
            if !ended.restart {
                bail!("the kernel ended the scheduler: {}", ended.reason);
            }
            eprintln!("unspin: {}: loading it again", ended.reason);
            drop(scheduler);
            scheduler = Scheduler::start(&options)?;
        }
        if let Some(due) = next.as_mut().filter(|due| **due <= Instant::now()) {
            *due += Duration::from_secs(args.stats.unwrap_or(1));
            tell(&scheduler.stats(), started.elapsed(), args.json)?;
        }
    }
    let stats = scheduler.stats();
    drop(scheduler);
    if args.json {
        tell(&stats, started.elapsed(), true)?;
    } else {
        eprint!("{}", scheduler::summary(&stats, started.elapsed().as_secs_f64()));
    }
    Ok(code)
}

fn tell(stats: &Stats, since: Duration, json: bool) -> anyhow::Result<()> {
    if json {
        out::line(serde_json::to_string(stats)?)
    } else {
        out::line(scheduler::line(stats, since.as_secs_f64()))
    }
}

fn start(command: &[String]) -> anyhow::Result<Option<Child>> {
    let Some((program, args)) = command.split_first() else { return Ok(None) };
    let child = Command::new(program).args(args).spawn();
    Ok(Some(child.with_context(|| format!("start {program}"))?))
}
