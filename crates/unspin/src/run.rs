//! `unspin run`.

mod ab;
mod keeper;
mod offer;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use unspin_guest::confine::{self, Confiner};
use unspin_guest::run::{Holders, HoldersError, Options, Rule, socket};
use unspin_lab::interrupt;
use unspin_model::scheduler::Stats;
use unspin_model::session::About;
use unspin_report::scheduler;

use crate::command::Running;
use crate::metrics::{self, Metrics};
use crate::{here, out};
use keeper::Keeper;
use offer::Offer;

/// Run the guest scheduler, which stops the waste
///
/// It runs until Ctrl-C, or while a command runs. It keeps tasks on as few vCPUs as do the most
/// useful work, where the host takes others away while locks are held. When it ends, however it
/// ends, the kernel's own scheduler takes over again. It needs root.
///
/// A command gets the SIGINT and SIGTERM that unspin gets, and unspin waits for it. If the kernel
/// ends the scheduler first, the command goes on without it, and unspin exits with status 1.
///
/// With --ab, unspin compares the work under both schedulers instead, and says which is better.
#[derive(clap::Args)]
pub struct Args {
    /// What keeps tasks on fewer vCPUs
    #[arg(long, value_enum, value_name = "ACTUATOR", default_value_t = Actuator::SchedExt)]
    actuator: Actuator,
    /// Rule that decides how many vCPUs are used
    #[arg(long, value_enum, value_name = "RULE", default_value_t = Pack::Waste)]
    pack: Pack,
    /// Use all vCPUs at all times
    #[arg(long, conflicts_with = "pack")]
    no_pack: bool,
    /// Do not probe which vCPUs share a pCPU. By default, they are used one after the other
    #[arg(long)]
    no_topology: bool,
    /// Leave each task in the run queue of its last vCPU
    #[arg(long)]
    no_place: bool,
    /// Give no extra time to tasks that hold contended locks
    #[arg(long)]
    no_handoff: bool,
    /// Name of threads that always count as holders of contended locks (up to 8 times)
    #[arg(long, value_name = "NAME", conflicts_with = "no_handoff")]
    holder: Vec<String>,
    /// Folder of a cgroup (version 2) whose tasks always count as holders (up to 8 times)
    #[arg(long, value_name = "FOLDER", conflicts_with = "no_handoff")]
    holder_cgroup: Vec<PathBuf>,
    /// Make the kernel's mutex spinners sleep while the owner's vCPU is off (no gain measured)
    #[arg(long)]
    adaptive_spin: bool,
    /// Time slice of a task, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    slice: u64,
    /// Seconds between two lines of figures [default: none until the end]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    stats: Option<u64>,
    /// Print figures as JSON, one document a line
    #[arg(long)]
    json: bool,
    /// Also serve the figures as OpenMetrics at http://ADDR/metrics, for Prometheus
    #[arg(long, value_name = "ADDR", value_parser = metrics::address)]
    listen: Option<SocketAddr>,
    /// Print the figures of what another `unspin run` started
    #[arg(long, conflicts_with_all = ["actuator", "pack", "no_pack", "no_topology", "no_place",
        "no_handoff", "adaptive_spin", "holder", "holder_cgroup", "slice", "stats", "listen", "command"])]
    status: bool,
    /// Lift the limits that a killed `unspin run` left on cgroups, and end
    #[arg(long, conflicts_with_all = ["status", "command", "listen", "stats"])]
    restore: bool,
    /// Socket that serves them
    #[arg(long, value_name = "PATH", default_value = socket::PATH)]
    socket: PathBuf,
    #[command(flatten)]
    ab: ab::Ab,
    /// Command to run under the scheduler, with its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Actuator {
    /// A scheduler in place of the kernel's (Linux 6.12)
    SchedExt,
    /// The kernel's own, with the cpuset of the top-level cgroups limited while they spin
    Cpuset,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Pack {
    /// Fewer vCPUs where they do more useful work
    Waste,
    /// One vCPU fewer or more each second, by the time that is lost, as Linux 7.4's
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

    /// The cgroup for the command, where it cannot stay in this process's.
    fn cgroup(&self) -> anyhow::Result<Option<PathBuf>> {
        match self.actuator {
            Actuator::SchedExt => Ok(None),
            Actuator::Cpuset => confine::own_cgroup().context("make a cgroup for the command"),
        }
    }

    fn options(&self) -> Result<Options, HoldersError> {
        Ok(Options {
            slice_ns: self.slice * 1_000_000,
            pack: self.rule(),
            place: !self.no_place,
            handoff: !self.no_handoff,
            holders: Holders::new(&self.holder, &self.holder_cgroup)?,
            adaptive_spin: self.adaptive_spin,
            topology: !self.no_topology,
            ..Options::of_this_machine()
        })
    }
}

/// How soon a command's end is seen, and a signal or a question: each look wakes a vCPU.
const PAUSE: Duration = Duration::from_millis(50);
const LONG_PAUSE: Duration = Duration::from_millis(250);

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.status {
        return status(&args);
    }
    if args.restore {
        let cleared = confine::restore()?;
        eprintln!("unspin: lifted the limits of {cleared} cgroups");
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(pairs) = args.ab.pairs() {
        return args.ab.run(pairs, args.options()?, &args.command, args.json);
    }
    if args.command.is_empty() {
        interrupt::install()?;
    }
    let (mut keeper, acts) = match args.actuator {
        Actuator::SchedExt => {
            // What a killed one with the other actuator has left.
            confine::restore()?;
            (Keeper::start(args.options()?)?, "the guest scheduler runs")
        }
        Actuator::Cpuset => (Keeper::confine(Confiner::start()?), "spinning limits the vCPUs"),
    };
    // Who is answered there finds it at work.
    let metrics = args.listen.map(Metrics::listen).transpose()?;
    if !args.json {
        let until = if args.command.is_empty() { "Ctrl-C" } else { "the command ends" };
        eprintln!("unspin: {acts} until {until}");
    }
    let offer = Offer::open(&args.socket, metrics);
    let running = match Running::start_in(args.cgroup()?.as_deref(), &args.command) {
        Ok(running) => running,
        Err(not_started) => return Ok(not_started.report()),
    };
    // Where figures are JSON, each line says where they are of.
    let about = args.json.then(here::about);
    let about = about.as_ref();
    let (code, printed) = work(&args, about, &mut keeper, offer, running)?;
    printed.and(print_last(&keeper.stats, about))?;
    match keeper.ended {
        None => Ok(ExitCode::from(code)),
        Some(why) if args.command.is_empty() => bail!(why),
        Some(why) => bail!("{why}; the command ended without it, with exit code {code}"),
    }
}

/// Until the command ends, or until a signal or the scheduler's end where there is none.
/// Returns the command's exit code, and whether all figures could be printed.
fn work(
    args: &Args,
    about: Option<&About>,
    keeper: &mut Keeper,
    offer: Offer,
    mut running: Option<Running>,
) -> anyhow::Result<(u8, anyhow::Result<()>)> {
    let mut offer = Some(offer);
    let every = args.stats.map(Duration::from_secs);
    let mut next = every.map(|every| Instant::now() + every);
    let mut printed = Ok(());
    loop {
        std::thread::sleep(if running.is_some() { PAUSE } else { LONG_PAUSE });
        keeper.step();
        match &mut running {
            Some(running) => {
                if let Some(code) = running.step()? {
                    return Ok((code, printed));
                }
            }
            None if interrupt::requested() || keeper.ended.is_some() => {
                return Ok((0, printed));
            }
            None => {}
        }
        if let Some(why) = &keeper.ended {
            if offer.take().is_some() {
                eprintln!("unspin: {why}; the command goes on under the kernel's own");
            }
            continue;
        }
        offer.iter_mut().for_each(|offer| offer.step(&keeper.stats));
        if let (Some(due), Some(every)) = (next.filter(|due| *due <= Instant::now()), every) {
            printed = print(&keeper.stats, about);
            next = printed.is_ok().then(|| due + every);
        }
    }
}

fn status(args: &Args) -> anyhow::Result<ExitCode> {
    let stats = socket::ask(&args.socket)?;
    if args.json {
        print(&stats, Some(&here::about()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let began = Duration::try_from_secs_f64(stats.seconds).ok();
    let began = began.and_then(|ago| SystemTime::now().checked_sub(ago));
    let since = began.map_or_else(|| "an unknown time".to_owned(), here::utc);
    out::text(scheduler::at_work(&stats, &since))?;
    print(&stats, None)?;
    out::text(scheduler::summary(&stats))?;
    Ok(ExitCode::SUCCESS)
}

fn print(stats: &Stats, about: Option<&About>) -> anyhow::Result<()> {
    match about {
        Some(about) => out::json_line(1, about, stats),
        None => out::line(scheduler::line(stats)),
    }
}

fn print_last(stats: &Stats, about: Option<&About>) -> anyhow::Result<()> {
    if about.is_some() {
        return print(stats, about);
    }
    eprint!("{}", scheduler::summary(stats));
    Ok(())
}
