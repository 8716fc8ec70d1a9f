//! The guest scheduler: loads `bpf/run.bpf.c`, keeps it running, and reports its statistics.
//!
//! [`crate::confine`] decides how many vCPUs it uses, as for cgroups. When this process ends,
//! however it does, the kernel returns to its own scheduler.

mod holders;
pub mod socket;
mod stats;

use std::fs;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::Instant;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Func;
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, OpenObject};
use unspin_model::class::{Class, Classified};
use unspin_model::diagnosis::Scheduling;
use unspin_model::scheduler::Stats;
use unspin_policy::activity::Limits;

pub use crate::confine::Rule;
use crate::confine::{self, ConfineError, Confiner, Queues};
use crate::machine::{Facts, Trial, host_helps};
use crate::sense::{
    Aligned, Plain, SenseError, Settings, Shared, check_ticks, hush_libbpf, may_be_locked_down,
    may_pass, only_for_root, passes,
};
use crate::spinning;
pub use holders::{Holders, HoldersError};
use stats::{CpuContext, End, State};

static PROGRAMS: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/run.bpf.o")));

const STATE: &str = "/sys/kernel/sched_ext/state";
const LOADED: &str = "/sys/kernel/sched_ext/root/ops";
/// The name of the scheduler of `bpf/run.bpf.c` in `LOADED`.
pub const NAME: &str = "unspin";
/// The bit of an exit code that requests a restart: a vCPU came or went.
const RESTART: i64 = 1 << 48;
/// The kernel's message when its own watchdog did not run for long either: the whole machine was
/// stopped.
const ALL_STOOD_STILL: &str = "watchdog failed to check in";
/// Exit kinds from this one on are errors.
const ERROR: i32 = 1024;

/// The settings of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The lateness from which on a vCPU counts as off.
    pub limits: Limits,
    /// The nanoseconds that a task runs before others get their turn.
    pub slice_ns: u64,
    /// The rule that decides how many vCPUs are used.
    pub pack: Rule,
    /// Whether a waking task is queued where it will probably wait least.
    pub place: bool,
    /// Whether holders of locks with waiters run on, and run next.
    pub handoff: bool,
    /// The tasks that always count as holders.
    pub holders: Holders,
    /// Whether a spinner for a lock is made to sleep while the owner's vCPU is off.
    pub adaptive_spin: bool,
    /// Whether vCPUs that share a pCPU are used one after the other.
    pub topology: bool,
}

impl Options {
    /// Returns the settings for this machine.
    pub fn of_this_machine() -> Options {
        Options { limits: Settings::of_this_machine().limits, ..Options::unmeasured() }
    }

    fn unmeasured() -> Options {
        Options {
            limits: Settings::UNMEASURED.limits,
            slice_ns: 3_000_000,
            pack: Rule::Waste,
            place: false,
            handoff: true,
            holders: Holders::default(),
            adaptive_spin: false,
            topology: true,
        }
    }
}

/// The errors of starting the scheduler.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The kernel has no sched_ext.
    #[error(
        "this kernel has no sched_ext (it takes Linux 6.12 or newer with CONFIG_SCHED_CLASS_EXT=y)"
    )]
    NoSchedExt,
    /// Another scheduler is loaded.
    #[error(
        "the sched_ext scheduler `{0}` is loaded: stop it first (Ctrl-C where it runs, or its systemd unit)"
    )]
    Taken(String),
    /// The kernel has a sched_ext, but not beside that boot parameter (scx_enable() of
    /// kernel/sched/ext.c).
    #[error("isolcpus= keeps vCPUs {0} free, beside which the kernel loads no sched_ext scheduler")]
    Isolated(String),
    /// Loading failed.
    #[error("the kernel does not load the scheduler (LIBBPF_LOG_LEVEL=warn says why)")]
    Load(#[source] libbpf_rs::Error),
    /// It cannot be loaded, and the kernel keeps its memory from BPF programs.
    #[error(
        "the kernel does not load the scheduler, because it is locked down for confidentiality, \
         which keeps its memory from BPF programs: boot with `lockdown=integrity`"
    )]
    LockedDown(#[source] libbpf_rs::Error),
    /// The kernel has loaded it, but took its own again at once.
    #[error("the kernel ended the scheduler at once: {0} (`sudo dmesg` may say more)")]
    Ended(String),
    /// The kernel loads schedulers only for root.
    #[error("needs root")]
    Root,
    /// The scheduler's statistics cannot be mapped.
    #[error("the scheduler's figures cannot be mapped: {0}")]
    Map(std::io::Error),
    /// Off intervals cannot be found.
    #[error(transparent)]
    Sense(#[from] SenseError),
    /// The control loop that decides how many vCPUs are used does not start.
    #[error(transparent)]
    Confine(#[from] ConfineError),
}

impl From<libbpf_rs::Error> for RunError {
    fn from(error: libbpf_rs::Error) -> RunError {
        match error {
            error if only_for_root(&error) => RunError::Root,
            error if may_be_locked_down(&error) => RunError::LockedDown(error),
            error => RunError::Load(error),
        }
    }
}

impl Classified for RunError {
    fn class(&self) -> Class {
        match self {
            RunError::Root => Class::NeedsRoot,
            RunError::Taken(_) => Class::Failed,
            RunError::Load(error) if may_pass(error) => Class::Failed,
            RunError::Map(error) if passes(error) => Class::Failed,
            RunError::Sense(error) => error.class(),
            RunError::Confine(error) => error.class(),
            _ => Class::Unavailable,
        }
    }
}

/// Returns whether the kernel has sched_ext and loads schedulers: with `isolcpus=` it refuses.
pub(crate) fn may_load() -> bool {
    fs::exists(STATE).unwrap_or(false) && confine::isolated().is_empty()
}

/// Returns whether `unspin run` could act now, with cgroups or with its scheduler.
pub fn scheduling() -> Scheduling {
    match fs::read_to_string(STATE) {
        _ if confine::at_work() || is_loaded() => Scheduling::Ours,
        _ if confine::in_container() => Scheduling::Absent,
        _ if confine::possible() => ready(),
        Err(_) => Scheduling::Absent,
        Ok(_) if !confine::isolated().is_empty() => Scheduling::Absent,
        Ok(state) if state.trim() == "disabled" => ready(),
        Ok(_) => Scheduling::Taken,
    }
}

fn ready() -> Scheduling {
    // The host's features do not change while the guest runs, and reading them takes exits.
    static HELPED: OnceLock<bool> = OnceLock::new();
    match *HELPED.get_or_init(|| host_helps(&Facts::of_spinlocks())) {
        true => Scheduling::Needless,
        false => Scheduling::Ready,
    }
}

/// Returns whether the scheduler of an `unspin run` is in place of the kernel's.
pub fn is_loaded() -> bool {
    fs::read_to_string(LOADED).is_ok_and(|name| name.trim() == NAME)
}

/// The BPF program that the agent runs to change the number of used vCPUs.
const WANT: &str = "want_vcpus";
/// The prefix of the section of a program that runs at the beginning of a kernel function.
const HOOK: &str = "fentry/";

/// Tries whether a [`Scheduler`] could start: loads its programs and unloads them. All tasks stay
/// with the kernel's own scheduler.
pub(crate) fn trial() -> Trial {
    loaded(&Options::unmeasured()).map_or_else(Trial::failed, |_| Trial::default())
}

/// Loads the programs without attaching them. Returns them and the number of vCPUs that they are
/// for.
fn loaded(options: &Options) -> Result<(Object, usize), RunError> {
    check_ticks()?;
    let state = fs::read_to_string(STATE).map_err(|_| RunError::NoSchedExt)?;
    if state.trim() != "disabled" {
        let loaded = fs::read_to_string(LOADED).unwrap_or_default();
        return Err(RunError::Taken(loaded.trim().to_owned()));
    }
    let isolated = confine::isolated();
    if !isolated.is_empty() {
        return Err(RunError::Isolated(isolated));
    }
    hush_libbpf();
    let vcpus = libbpf_rs::num_possible_cpus()?;
    let mut open = ObjectBuilder::default().open_memory(&PROGRAMS.0)?;
    configure(&mut open, options, vcpus)?;
    leave_out_missing(&mut open, options)?;
    Ok((open.load()?, vcpus))
}

/// The end of the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The kernel's reason, with its message if there is one.
    pub reason: String,
    /// Whether to load the scheduler again: the number of vCPUs has changed, or the host had
    /// stopped the whole machine for so long that the kernel took it for a stall.
    pub restart: bool,
    /// Whether the end was an error.
    pub failed: bool,
}

/// A running scheduler. Dropping this returns all tasks to the kernel's own.
pub struct Scheduler {
    // This field is dropped first: the kernel takes a second to detach the programs of the others.
    _link: Link,
    confiner: Confiner,
    states: Shared<State>,
    ends: Shared<End>,
    contexts: Shared<CpuContext>,
    loaded: Instant,
    _links: Vec<Link>,
    object: Object,
}

impl Scheduler {
    /// Loads the scheduler and gives it all tasks.
    pub fn start(options: &Options) -> Result<Scheduler, RunError> {
        let (mut object, vcpus) = loaded(options)?;
        let mut links = Vec::new();
        for program in object.progs_mut().filter(|program| program.autoload()) {
            let section = program.section().to_string_lossy().into_owned();
            if section.contains("struct_ops") || section == "syscall" {
                continue;
            }
            match (program.attach(), section.strip_prefix(HOOK)) {
                (Ok(link), _) => links.push(link),
                // The kernel refuses some functions, such as those without instrumentation.
                (Err(error), Some(function)) => {
                    note!("unspin: waiters in {function} are not seen: {error}");
                }
                (Err(error), None) => return Err(error.into()),
            }
        }
        let shared = |name: &str| object.maps().find(|map| map.name() == name).expect("our map");
        let size = |name| shared(name).value_size() as usize;
        assert_eq!([size("states"), size("ends")], [size_of::<State>(), size_of::<End>()]);
        let states = Shared::map(shared("states").as_fd(), 1).map_err(RunError::Map)?;
        let ends = Shared::map(shared("ends").as_fd(), 1).map_err(RunError::Map)?;
        let contexts = Shared::map(shared("cpu_ctxs").as_fd(), vcpus).map_err(RunError::Map)?;
        let want = object.progs().find(|program| program.name() == WANT).expect("our program");
        let want = want.as_fd().try_clone_to_owned().map_err(RunError::Map)?;
        let settings = Settings { limits: options.limits, ..Settings::UNMEASURED };
        let confiner = Confiner::of_queues(&settings, Queues::new(want), options.pack)?;
        let mut ops = object.maps_mut().find(|map| map.name() == "unspin").expect("our map");
        let link = ops.attach_struct_ops()?;
        let (_link, _links, loaded) = (link, links, Instant::now());
        let scheduler =
            Scheduler { _link, confiner, states, ends, contexts, loaded, _links, object };
        // If the kernel attaches a scheduler but fails to enable it, only this reveals the failure.
        match scheduler.ended().filter(|ended| !ended.restart) {
            Some(ended) => Err(RunError::Ended(ended.reason)),
            None => Ok(scheduler),
        }
    }

    /// Returns the scheduler's statistics.
    pub fn stats(&self) -> Stats {
        let contexts: Vec<CpuContext> =
            (0..self.contexts.count()).map(|vcpu| self.contexts.read(vcpu, 0)).collect();
        let stats = self.states.read::<State>(0, 0).stats(&contexts, self.confiner.stats());
        Stats { seconds: self.loaded.elapsed().as_secs_f64(), ..stats }
    }

    /// Sets which vCPUs share a pCPU: for each vCPU, the first one on the same pCPU.
    pub fn share_pcpus(&self, firsts: &[u32]) -> Result<(), RunError> {
        let stacks = self.object.maps().find(|map| map.name() == "stacks").expect("our map");
        for (vcpu, first) in firsts.iter().enumerate() {
            let (key, value) = ((vcpu as u32).to_ne_bytes(), (first + 1).to_ne_bytes());
            stacks.update(&key, &value, MapFlags::ANY)?;
        }
        Ok(())
    }

    /// Returns how the scheduler ended, if it has.
    pub fn ended(&self) -> Option<Ended> {
        let end: End = self.ends.read(0, 0);
        let text = |bytes: &[u8]| {
            let until = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..until]).into_owned()
        };
        let words: Vec<String> =
            [text(&end.reason), text(&end.message)].into_iter().filter(|t| !t.is_empty()).collect();
        if end.kind == 0 && self.confiner.has_ended() {
            let reason = "nobody decides how many vCPUs are used any more".to_owned();
            return Some(Ended { reason, restart: false, failed: true });
        }
        (end.kind != 0).then(|| Ended {
            reason: words.join(": "),
            restart: end.code & RESTART != 0 || text(&end.message).starts_with(ALL_STOOD_STILL),
            failed: end.kind >= ERROR,
        })
    }
}

/// Disables programs at functions that the kernel lacks, or at all functions if no option needs
/// them.
fn leave_out_missing(open: &mut OpenObject, options: &Options) -> Result<(), RunError> {
    let btf = Btf::from_vmlinux()?;
    let wanted = options.handoff || options.adaptive_spin;
    for mut program in open.progs_mut() {
        let section = program.section().to_string_lossy().into_owned();
        if let Some(function) = section.strip_prefix(HOOK) {
            program.set_autoload(wanted && btf.type_by_name::<Func<'_>>(function).is_some());
        }
    }
    Ok(())
}

fn configure(open: &mut OpenObject, options: &Options, vcpus: usize) -> Result<(), RunError> {
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if ["vcpus", "cpu_ctxs", "rechecks", "stacks"].contains(&name.as_str()) {
            map.set_max_entries(vcpus as u32)?;
        } else if name.ends_with(".rodata") {
            let bytes = map.initial_value_mut().expect("the settings have a value");
            let limits = options.limits;
            let mut words = vec![limits.timer_ns, limits.wake_ns, options.slice_ns];
            let on = [options.place, options.handoff, options.adaptive_spin];
            words.extend(on.map(u64::from));
            words.extend(spinning::words());
            words.extend(options.holders.words());
            for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
                place.copy_from_slice(&word.to_ne_bytes());
            }
        }
    }
    Ok(())
}

// SAFETY: integers only.
unsafe impl Plain for State {}
// SAFETY: integers only.
unsafe impl Plain for End {}
