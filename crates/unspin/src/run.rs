//! `unspin run`.

mod ab;
mod choice;
mod keeper;
mod offer;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::bail;
use unspin_guest::confine::{self, ONE_VCPU, OwnCgroup};
use unspin_guest::run::{Holders, HoldersError, Options, Rule, socket};
use unspin_lab::interrupt;
use unspin_model::class::Class;
use unspin_model::scheduler::{Actuator, Stats};
use unspin_model::session::About;
use unspin_report::{printable, scheduler};

use crate::command::Running;
use crate::failure::of_class;
use crate::metrics::{self, Metrics};
use crate::{here, out};
use choice::Choice;
use keeper::Keeper;
use offer::Offer;

/// Stop wasted spinning: limit tasks to fewer vCPUs while that gets more done
///
/// It runs until Ctrl-C, or while a command runs. While vCPUs spend much of their time spinning, it
/// limits tasks to as many vCPUs as do the most useful work; the kernel's scheduler stays. When it
/// ends, the limit is lifted. It needs root.
///
/// Where the host offers PV spinlocks and steal time, a limit seldom gains, so it does nothing
/// there unless --actuator, or an option of sched-ext, is given.
///
/// `--actuator sched-ext`, or an option of it, loads a scheduler in place of the kernel's instead.
/// However that one ends, the kernel's own takes over again.
///
/// A command gets the signals that ask unspin to end (SIGINT, SIGTERM, SIGQUIT and SIGHUP), and
/// unspin waits for it. If the kernel ends the scheduler first, the command goes on without it, and
/// unspin exits with status 1.
///
/// With --ab, unspin compares the work with and without it instead, and says which is better.
#[derive(clap::Args)]
pub struct Args {
    /// Mechanism that limits tasks to fewer vCPUs [default: cpuset; sched-ext where cgroups cannot
    /// be limited, or with one of its options]
    #[arg(long, value_enum, value_name = "ACTUATOR")]
    actuator: Option<Way>,
    /// sched-ext: rule that decides how many vCPUs are used [default: waste]
    #[arg(long, value_enum, value_name = "RULE", help_heading = SCHED_EXT)]
    pack: Option<Pack>,
    /// Use all vCPUs at all times
    #[arg(long, conflicts_with = "pack", help_heading = SCHED_EXT)]
    no_pack: bool,
    /// Do not probe which vCPUs share a pCPU. By default, they are used one after the other
    #[arg(long, help_heading = SCHED_EXT)]
    no_topology: bool,
    /// Queue a waking task where it will probably wait least, as bvs of vSched (no gain measured)
    #[arg(long, help_heading = SCHED_EXT)]
    place: bool,
    /// Give no extra time to tasks that hold contended locks
    #[arg(long, help_heading = SCHED_EXT)]
    no_handoff: bool,
    /// Name of threads that always count as holders of contended locks (up to 8 times)
    #[arg(long, value_name = "NAME", conflicts_with = "no_handoff", help_heading = SCHED_EXT)]
    holder: Vec<String>,
    /// Folder of a cgroup (version 2) whose tasks always count as holders (up to 8 times)
    #[arg(long, value_name = "FOLDER", conflicts_with = "no_handoff", help_heading = SCHED_EXT)]
    holder_cgroup: Vec<PathBuf>,
    /// Make the kernel's mutex spinners sleep while the owner's vCPU is off (no gain measured)
    #[arg(long, help_heading = SCHED_EXT)]
    adaptive_spin: bool,
    /// Time slice of a task, in milliseconds [default: 3]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=100),
        help_heading = SCHED_EXT)]
    slice: Option<u64>,
    /// Seconds between two lines of figures [default: none until the end]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86400))]
    stats: Option<u64>,
    /// Print figures as JSON, one document a line, and what CMD prints on standard error; with
    /// --ab, one document
    #[arg(long)]
    json: bool,
    /// Also serve the figures as OpenMetrics at http://ADDR/metrics, for Prometheus; `:PORT` is
    /// all IPv4 interfaces
    #[arg(long, value_name = "ADDR", value_parser = metrics::address)]
    listen: Option<SocketAddr>,
    /// Print the state and the figures of the `unspin run` that is running
    #[arg(long, conflicts_with_all = ["actuator", "pack", "no_pack", "no_topology", "place",
        "no_handoff", "adaptive_spin", "holder", "holder_cgroup", "slice", "stats", "listen", "command"])]
    status: bool,
    /// Lift the limits that a killed `unspin run` left on cgroups, and end
    #[arg(long, conflicts_with_all = ["status", "command", "listen", "stats", "json", "actuator",
        "pack", "no_pack", "no_topology", "place", "no_handoff", "adaptive_spin", "holder",
        "holder_cgroup", "slice", "socket"])]
    restore: bool,
    /// Wait for the end of standard input first: what an `unspin run` starts as its guard
    #[arg(long, hide = true, requires = "restore")]
    when_gone: bool,
    /// Socket that serves the figures
    #[arg(long, value_name = "PATH", default_value = socket::PATH)]
    socket: PathBuf,
    #[command(flatten)]
    ab: ab::Ab,
    /// Command to run, with its arguments, as the user who runs unspin
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Heading in the help of the options that only sched-ext has.
const SCHED_EXT: &str = "Options of --actuator sched-ext";
/// Default time slice, in milliseconds.
const SLICE: u64 = 3;

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Way {
    /// Keep the kernel's scheduler; limit the cpusets of the top-level cgroups while vCPUs spin
    Cpuset,
    /// A scheduler in place of the kernel's (Linux 6.12 or newer)
    SchedExt,
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
        match self.pack.unwrap_or(Pack::Waste) {
            _ if self.no_pack => Rule::Never,
            Pack::Waste => Rule::Waste,
            Pack::StealGovernor => Rule::StealGovernor,
        }
    }

    /// Returns the first given option that only the sched-ext scheduler has.
    fn of_sched_ext(&self) -> Option<&'static str> {
        let given = [
            ("--pack", self.pack.is_some()),
            ("--no-pack", self.no_pack),
            ("--no-topology", self.no_topology),
            ("--place", self.place),
            ("--no-handoff", self.no_handoff),
            ("--holder", !self.holder.is_empty()),
            ("--holder-cgroup", !self.holder_cgroup.is_empty()),
            ("--adaptive-spin", self.adaptive_spin),
            ("--slice", self.slice.is_some()),
        ];
        given.iter().find(|(_, given)| *given).map(|(name, _)| *name)
    }

    fn choice(&self) -> anyhow::Result<Choice> {
        let actuator = match (self.actuator, self.of_sched_ext()) {
            (Some(Way::Cpuset), Some(option)) => {
                let text = format!("{option} is an option of --actuator sched-ext");
                return Err(of_class(Class::Usage, text));
            }
            (Some(Way::Cpuset), None) => Some(Actuator::Cpuset),
            (Some(Way::SchedExt), _) | (None, Some(_)) => Some(Actuator::SchedExt),
            (None, None) => None,
        };
        Ok(Choice { actuator, rests: true, options: self.options()? })
    }

    fn options(&self) -> Result<Options, HoldersError> {
        Ok(Options {
            slice_ns: self.slice.unwrap_or(SLICE) * 1_000_000,
            pack: self.rule(),
            place: self.place,
            handoff: !self.no_handoff,
            holders: Holders::new(&self.holder, &self.holder_cgroup)?,
            adaptive_spin: self.adaptive_spin,
            topology: !self.no_topology,
            ..Options::of_this_machine()
        })
    }
}

/// Description of the cpuset actuator.
const LIMITS: &str = "limits vCPUs while they spin,";
/// Longest pause between two looks at the actuator. A signal, a query or the command's end ends the
/// pause at once, so an idle guest wakes rarely.
const LONG_PAUSE: Duration = Duration::from_secs(2);
/// The same pause if a scheduler acts, which may have to be loaded again.
const SCHEDULER_PAUSE: Duration = Duration::from_millis(250);

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.status {
        return status(&args);
    }
    if args.when_gone {
        confine::restore_when_gone()?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.restore {
        choice::only_root()?;
        let cleared = confine::restore()?;
        note!("unspin: lifted the limits of {cleared} cgroups");
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(pairs) = args.ab.pairs() {
        return args.ab.run(pairs, args.choice()?, &args.command, args.json);
    }
    let choice = args.choice()?;
    if args.command.is_empty() {
        interrupt::install()?;
    }
    let mut keeper = choice.start()?;
    let (acts, cgroup) = match keeper.stats.actuator {
        _ if keeper.rests() => ("does nothing", None),
        Actuator::SchedExt => ("the guest scheduler runs", None),
        Actuator::Cpuset if args.command.is_empty() => (LIMITS, None),
        Actuator::Cpuset => (LIMITS, choice::cgroup()?),
    };
    // The address answers only after the actuator has started.
    let metrics = args.listen.map(Metrics::listen).transpose()?;
    if !args.json {
        let until = if args.command.is_empty() { "Ctrl-C" } else { "the command ends" };
        if let Some(why) = &keeper.stats.resting {
            note!("unspin: {why}");
        } else if keeper.stats.actuator == Actuator::Cpuset && keeper.stats.vcpus == 1 {
            note!("unspin: {ONE_VCPU}");
        }
        note!("unspin: {acts} until {until}");
    }
    let offer = Offer::open(&args.socket, metrics);
    let cgroup = cgroup.as_ref().map(OwnCgroup::folder);
    let running = match Running::start_in(cgroup, &args.command, args.json) {
        Ok(running) => running,
        Err(not_started) => return Ok(not_started.report()),
    };
    // Each JSON line names the machine that its figures come from.
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

/// Keeps the actuator running until the command ends. Without a command, it runs until a signal or
/// the scheduler's end. Returns the command's exit code, and whether all figures were printed.
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
    offer.iter_mut().for_each(|offer| offer.step(&keeper.stats));
    loop {
        let pause = match keeper.stats.actuator {
            _ if keeper.rests() => LONG_PAUSE,
            Actuator::Cpuset => LONG_PAUSE,
            Actuator::SchedExt => SCHEDULER_PAUSE,
        };
        let due = next.map(|due| due.saturating_duration_since(Instant::now()));
        let asked = offer.iter().flat_map(Offer::files);
        let files = asked.chain(running.as_ref().map(Running::news)).collect::<Vec<_>>();
        interrupt::wait(&files, due.map_or(pause, |due| due.min(pause)));
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
                note!("unspin: {}; the command goes on without it", printable(why));
            }
            continue;
        }
        offer.iter_mut().for_each(|offer| offer.step(&keeper.stats));
        if let (Some(due), Some(every)) = (next.filter(|due| *due <= Instant::now()), every) {
            printed = print(&keeper.stats, about);
            next = printed.is_ok().then(|| following(due, every, Instant::now()));
        }
    }
}

/// Returns when the next line of figures is due. A stopped process (Ctrl-Z) does not print the
/// missed lines.
fn following(due: Instant, every: Duration, now: Instant) -> Instant {
    (due + every).max(now)
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
    show!("{}", scheduler::summary(stats));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_were_missed_are_not_printed_all_at_once() {
        let (due, every) = (Instant::now(), Duration::from_secs(1));
        let after = |late_ms| following(due, every, due + Duration::from_millis(late_ms)) - due;
        assert_eq!([after(0), after(300)], [every; 2]);
        assert_eq!(after(3_600_000), Duration::from_secs(3_600));
    }
}
