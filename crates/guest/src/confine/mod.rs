//! The light way: the kernel's scheduler stays, and its tasks are limited to fewer vCPUs by
//! cgroups while more of them would spin.
//!
//! Off intervals are found by `bpf/watch.bpf.c`, spins are counted by `bpf/account.bpf.c`, and
//! `policy/confine.h` decides.

mod arrangement;
mod brake;
mod cpusets;
mod error;
mod figures;
mod guard;
mod journal;
mod kthreads;
mod price;
mod priority;
mod rest;
mod root;
mod set;
mod spare;
mod vigilance;
mod window;

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use unspin_model::scheduler::Stats;
use unspin_policy::confine::{Confine, Facts, WINDOW_NS};

use crate::account::{Account, Woken};
use crate::sense::{LightSensor, Settings};
use crate::spinning;
use arrangement::Arrangement;
use cpusets::{Cpusets, How};
pub use error::{ConfineError, CpusetError};
use priority::{run_as_others, run_first};
pub use rest::{HELPED, Rest};
pub use root::{OwnCgroup, own_cgroup};
pub(crate) use set::online;
use vigilance::Vigilance;
use window::Sums;

/// Where cgroups of version 2 are.
const ROOT: &str = "/sys/fs/cgroup";
/// Where what is limited is noted.
const FOLDER: &str = "/run/unspin";

const WINDOW: Duration = Duration::from_nanos(WINDOW_NS);
/// While there is little to do, each look would only wake a vCPU.
const QUIET_WINDOW: Duration = Duration::from_millis(50);
/// Without a limit and without spins there is nothing to decide. After so many windows with a
/// smaller share of spins, in percent, it rests until a vCPU spins, for so long at most.
const CALM_WINDOWS: u32 = 3;
const CALM_PERCENT: u32 = 10;
const REST: Duration = Duration::from_secs(1);
/// Where spins are not counted, nothing wakes it, so it looks for preempted vCPUs while there is
/// work.
const SHORT_REST: Duration = Duration::from_millis(100);
/// How often cgroups that have come are limited, too, and vCPUs that came or went are noticed.
const ROUND: u32 = 10;

/// The limit at work; it is lifted when this is dropped.
pub struct Confiner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Ends a rest when it is dropped.
    end: Option<UnixStream>,
    _guard: Option<guard::Guard>,
}

#[derive(Default)]
struct Shared {
    over: AtomicBool,
    stats: Mutex<Stats>,
}

impl Confiner {
    /// Starts counting spins, and limiting cgroups while they cost much.
    pub fn start() -> Result<Confiner, ConfineError> {
        if let Some(lacks) = lacks() {
            return Err(lacks.into());
        }
        // First, because what follows changes cgroups.
        let guard = guard::Guard::start();
        let control = Control::start(&Settings::of_this_machine())?;
        let shared = Arc::new(Shared { stats: Mutex::new(control.stats()), ..Shared::default() });
        let its = shared.clone();
        let (ends, end) = UnixStream::pair().map_err(ConfineError::Thread)?;
        let work = move || control.run(&its, &ends);
        let thread = thread::Builder::new().name("unspin-confine".into()).spawn(work);
        let thread = Some(thread.map_err(ConfineError::Thread)?);
        Ok(Confiner { shared, thread, end: Some(end), _guard: guard })
    }

    /// What it does and has done.
    pub fn stats(&self) -> Stats {
        self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether its thread has ended, which it does only where it failed.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Confiner {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been printed, and its unwinding has lifted the limit.
            let _ = thread.join();
        }
    }
}

/// Lifts what a killed process has left; how many cgroups were limited.
pub fn restore() -> Result<usize, CpusetError> {
    root::remove_own_cgroup();
    cpusets::restore_after_crash(Path::new(FOLDER), cpusets::PATIENCE)
}

/// The same once the process is gone that has this process as its guard.
pub fn restore_when_gone() -> Result<usize, CpusetError> {
    // What it is to lift may hold it up.
    let _ = run_first();
    guard::wait();
    cpusets::restore_after_crash(Path::new(FOLDER), guard::PATIENCE)
}

/// Whether cgroups of version 2 can limit tasks to some vCPUs here.
pub fn possible() -> bool {
    lacks().is_none()
}

/// Why they cannot.
pub fn lacks() -> Option<CpusetError> {
    if root::in_pid_namespace() {
        // Its cgroups can be the guest's own. But what a killed one leaves, nobody outside finds.
        return Some(CpusetError::Container(ROOT.into()));
    }
    cpusets::check(Path::new(ROOT), &set::isolated()).err()
}

/// Whether this is a container's part of the cgroups, in which nothing can be limited.
pub fn in_container() -> bool {
    matches!(lacks(), Some(CpusetError::Container(_)))
}

/// Whether an `unspin run` limits vCPUs, or may do so at any time.
pub fn at_work() -> bool {
    let folder = Path::new(FOLDER);
    journal::Journal::is_in(folder) && journal::Journal::is_held(folder)
}

/// What decides, in a thread of its own.
struct Control {
    // Dropped first: the kernel takes a second to let go of the programs of the others.
    cpusets: Cpusets,
    sensor: LightSensor,
    account: Account,
    vigilance: Vigilance,
    confine: Confine,
    online: Vec<u32>,
    arrangement: Arrangement,
    before: Sums,
    first: Sums,
    facts: Facts,
    started: Instant,
    late_ns: u64,
    /// What a context switch costs.
    switch_ns: u64,
    used_vcpu_s: f64,
    lost: u64,
    failed: Option<String>,
    /// Windows without spins, and without a limit.
    calm: u32,
    /// A spin has ended a rest, and no window since.
    woken: bool,
    in_root: root::InRoot,
    /// Whether the vCPUs out of use are to be isolated, since the limit changed last.
    parted: bool,
    /// Why it has no real-time priority.
    late: Option<String>,
}

impl Control {
    fn start(settings: &Settings) -> Result<Control, ConfineError> {
        let root = Path::new(ROOT);
        let unknown = |error| CpusetError::Limit(root.to_owned(), error);
        let online = set::usable(root).map_err(unknown)?;
        let cpusets = Cpusets::open(
            root,
            Path::new(FOLDER),
            Path::new(kthreads::PROC),
            &set::all(&online).map_err(unknown)?,
            spinning::kernel().throttles_in_user,
        )?;
        let sensor = LightSensor::start(settings)?;
        let account = Account::start(&sensor)?;
        let mut control = Control {
            cpusets,
            sensor,
            vigilance: Vigilance::new(account.attached_ns),
            account,
            confine: Confine::new(online.len() as u32),
            online,
            arrangement: Arrangement::default(),
            before: Sums::default(),
            first: Sums::default(),
            facts: Facts::default(),
            started: Instant::now(),
            late_ns: settings.limits.timer_ns,
            switch_ns: price::switch_ns(),
            used_vcpu_s: 0.0,
            lost: 0,
            failed: None,
            calm: 0,
            woken: false,
            in_root: root::InRoot::look(),
            parted: false,
            late: None,
        };
        control.before = control.sums();
        control.first = control.before;
        Ok(control)
    }

    fn run(mut self, shared: &Shared, end: &UnixStream) {
        self.late = run_first().err().map(|error| error.to_string());
        let mut alarm = self.account.alarm().ok();
        let mut rounds = 0;
        while !shared.over.load(Ordering::Relaxed) {
            let rests = alarm.as_ref().filter(|_| self.may_rest());
            let rest = self.rest();
            match rests.map(|alarm| alarm.rest(rest, end.as_fd())) {
                Some(Ok(Woken::Spins)) => {
                    self.wake();
                    continue;
                }
                Some(Ok(Woken::Over)) if rest == REST => rounds = 0,
                Some(Ok(Woken::Over)) => {}
                Some(Err(_)) => alarm = None,
                None => thread::sleep(self.pause()),
            }
            let began_ns = self.before.now_ns;
            self.step(rounds % ROUND == 0);
            self.count_or_not(self.before.now_ns - began_ns);
            rounds += 1;
            *shared.stats.lock().unwrap_or_else(PoisonError::into_inner) = self.stats();
        }
    }

    fn pause(&self) -> Duration {
        if self.is_quiet() && !self.woken { QUIET_WINDOW } else { WINDOW }
    }

    /// Whether a spin is soon enough to look again.
    fn may_rest(&self) -> bool {
        self.calm >= CALM_WINDOWS || (self.calm > 0 && self.is_quiet())
    }

    fn rest(&self) -> Duration {
        if self.calm < CALM_WINDOWS {
            QUIET_WINDOW
        } else if self.account.is_counting() || self.is_quiet() {
            REST
        } else {
            SHORT_REST
        }
    }

    /// Whether half a vCPU would do.
    fn is_quiet(&self) -> bool {
        self.facts.on_m + self.facts.off_m < 500
    }

    /// Begins to count spins, or ends it, after a window of that length.
    fn count_or_not(&mut self, window_ns: u64) {
        let vcpus = self.online.len();
        let limits = self.confine.in_use() as usize != vcpus || self.confine.on_trial();
        let counts = self.vigilance.step(&self.facts, vcpus, window_ns, limits);
        if counts == self.account.is_counting() {
            return;
        }
        if counts {
            self.failed = self.account.resume().err().map(|error| error.to_string());
            self.vigilance.attached(self.account.attached_ns);
        } else {
            // It takes long, and the guest has work for all of its vCPUs.
            let _ = run_as_others();
            self.account.pause();
            self.late = run_first().err().map(|error| error.to_string());
        }
        self.wake();
    }

    /// Begins a window after a rest: the next decision rests on what follows.
    fn wake(&mut self) {
        let now = self.sums();
        self.begin_window(now);
        self.confine.wake();
        self.calm = 0;
        self.woken = true;
    }

    fn begin_window(&mut self, now: Sums) {
        let seconds = (now.now_ns - self.before.now_ns) as f64 / 1e9;
        self.used_vcpu_s += f64::from(self.confine.in_use()) * seconds;
        self.before = now;
    }

    fn step(&mut self, round: bool) {
        if let Some(Err(error)) = round.then(|| self.follow_hotplug()) {
            self.failed = Some(error.to_string());
            return;
        }
        self.woken = false;
        let now = self.sums();
        self.facts = now.since(&self.before, self.online.len() as u32, self.switch_ns);
        if round && !self.confine.on_trial() {
            self.in_root.refresh();
        }
        let (before, tried_fewer) = (self.confine.in_use(), self.confine.tries_fewer());
        if before as usize != self.online.len() && self.failed.is_none() {
            self.arrangement.add(&self.facts, before as usize);
        }
        self.begin_window(now);
        let usage = self.confine.step(&self.facts, now.now_ns) as usize;
        let wanted_m = self.facts.on_m + self.facts.off_m;
        let spins = self.facts.spin_m * 100 > wanted_m * CALM_PERCENT;
        let is_calm = usage == self.online.len() && !self.confine.on_trial() && !spins;
        self.calm = if is_calm { self.calm + 1 } else { 0 };
        // Nothing else keeps processes of the root cgroup from the other vCPUs.
        let part = self.confine.isolates(now.now_ns) || self.in_root.busy;
        let changes = usage != before as usize;
        if !round && !changes && (self.parted || !part) {
            return;
        }
        self.parted = part || (self.parted && !changes);
        // Without a real-time priority, the brake would hold this thread as well.
        let jammed = window::is_jammed(&self.facts);
        let brake = (usage < before as usize || jammed) && self.late.is_none();
        let how = How { brake, part };
        if changes && tried_fewer {
            self.arrangement.switch();
        } else if usage < before as usize {
            self.arrangement.choose(usage);
        }
        let done = match usage == self.online.len() {
            true => self.cpusets.lift(how.brake),
            false => {
                let (keep, spare) = self.arrangement.split(&self.online, usage);
                self.cpusets.limit(&set::list(&keep), &set::list(&spare), how)
            }
        };
        self.failed = done.err().map(|error| error.to_string());
        if changes {
            self.arrangement.begin();
            let now = self.sums();
            self.begin_window(now);
        }
    }

    /// With another number of vCPUs all that was learnt is about another machine.
    fn follow_hotplug(&mut self) -> Result<(), CpusetError> {
        let unknown = |error| CpusetError::Limit(ROOT.into(), error);
        let online = set::usable(Path::new(ROOT)).map_err(unknown)?;
        if online != self.online {
            self.cpusets.lift(false)?;
            self.cpusets.replace_all(&set::all(&online).map_err(unknown)?)?;
            self.confine = Confine::new(online.len() as u32);
            self.arrangement = Arrangement::default();
            self.vigilance.forget_all();
            self.online = online;
            // Sums are of other vCPUs now, and what they have grown by since the start is not.
            let now = self.sums();
            self.first = now.less(&self.before.less(&self.first));
            self.begin_window(now);
        }
        Ok(())
    }
}
