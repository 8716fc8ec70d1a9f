//! Limits tasks to fewer vCPUs while more of them would spin. Either cgroups limit them, and the
//! kernel's scheduler stays, or the queues of the scheduler in `bpf/run.bpf.c` do.
//!
//! `bpf/watch.bpf.c` finds off intervals, `bpf/account.bpf.c` counts spins, and `policy/confine.h`
//! decides.

mod arrangement;
mod brake;
mod control;
mod cpusets;
mod error;
mod failures;
mod figures;
mod guard;
mod journal;
mod kthreads;
mod means;
mod price;
mod priority;
mod rest;
mod root;
mod rule;
mod set;
mod spare;
mod vigilance;
mod window;

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use unspin_model::scheduler::Stats;

use crate::sense::Settings;
use crate::spinning;
use control::Control;
use cpusets::Cpusets;
pub use error::{ConfineError, CpusetError, LimitError};
use means::Means;
pub use means::Queues;
use priority::run_first;
pub use rest::{HELPED, ONE_VCPU, Rest};
use root::InRoot;
pub use root::{OwnCgroup, own_cgroup};
pub use rule::Rule;
pub(crate) use set::{isolated, online, possible_vcpus};

/// The mount of cgroups of version 2.
const ROOT: &str = "/sys/fs/cgroup";
/// The folder of the journal, which lists what is limited.
const FOLDER: &str = "/run/unspin";

/// A running control loop. Dropping this ends it and lifts the limit.
pub struct Confiner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Closing this socket ends a rest.
    end: Option<UnixStream>,
}

#[derive(Default)]
struct Shared {
    over: AtomicBool,
    stats: Mutex<Stats>,
}

impl Confiner {
    /// Starts counting spins, and limits cgroups while spins cost much.
    ///
    /// # Errors
    /// Cgroups cannot be limited here, or spins cannot be counted.
    pub fn start() -> Result<Confiner, ConfineError> {
        if let Some(lacks) = lacks() {
            return Err(lacks.into());
        }
        // Start the guard first, because the next steps change cgroups.
        let guard = guard::Guard::start();
        let settings = Settings::of_this_machine();
        let (guard, mut cpusets) = guard::keep(guard, cgroups())?;
        cpusets.guard = guard;
        let means = Means::Cgroups { cpusets, in_root: InRoot::look() };
        let control = Control::start(&settings, means, Rule::Waste)?;
        if spinning::version().is_some_and(|version| version < (6, 2)) {
            note!("unspin: before Linux 6.2, a limit takes from tasks the vCPUs they are bound to");
        }
        Confiner::of(control)
    }

    /// Starts the same loop with the queues of a scheduler in place of cgroups.
    ///
    /// # Errors
    /// Spins cannot be counted.
    pub(crate) fn of_queues(
        settings: &Settings,
        queues: Queues,
        rule: Rule,
    ) -> Result<Confiner, ConfineError> {
        Confiner::of(Control::start(settings, Means::Queues(queues), rule)?)
    }

    fn of(control: Control) -> Result<Confiner, ConfineError> {
        let shared = Arc::new(Shared { stats: Mutex::new(control.stats()), ..Shared::default() });
        let its = shared.clone();
        let (ends, end) = UnixStream::pair().map_err(ConfineError::Thread)?;
        let work = move || control.run(&its, &ends);
        let thread = thread::Builder::new().name("unspin-confine".into()).spawn(work);
        let thread = Some(thread.map_err(ConfineError::Thread)?);
        Ok(Confiner { shared, thread, end: Some(end) })
    }

    /// Returns the loop's statistics.
    pub fn stats(&self) -> Stats {
        self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether the thread has ended, which happens only if it failed.
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

/// Takes over the hierarchy of cgroups.
fn cgroups() -> Result<Box<Cpusets>, CpusetError> {
    let root = Path::new(ROOT);
    let unknown = |error| CpusetError::Read(root.to_owned(), error);
    let usable = set::usable(root).map_err(unknown)?;
    let cpusets = Cpusets::open(
        root,
        Path::new(FOLDER),
        Path::new(kthreads::PROC),
        &set::all(&usable).map_err(unknown)?,
        spinning::kernel().throttles_in_user,
    )?;
    Ok(Box::new(cpusets))
}

/// Lifts the limits of a killed process, and returns the number of cgroups that were limited.
pub fn restore() -> Result<usize, CpusetError> {
    let lift = || {
        // The collapse that this call is to end may hold it up.
        let _ = run_first();
        root::remove_own_cgroup();
        cpusets::restore_after_crash(Path::new(FOLDER), cpusets::PATIENCE)
    };
    // The thread is a separate one, so that no command inherits its priority.
    thread::scope(|scope| scope.spawn(lift).join().expect("does not panic"))
}

/// Lifts the limits of the process that this process guards, once that one has ended.
pub fn restore_when_gone() -> Result<usize, CpusetError> {
    // The collapse may hold this process up, too.
    let _ = run_first();
    guard::wait();
    cpusets::restore_after_crash(Path::new(FOLDER), guard::PATIENCE)
}

/// Returns whether cgroups of version 2 can limit tasks to some vCPUs here.
pub fn possible() -> bool {
    lacks().is_none()
}

/// Returns why cgroups cannot limit tasks here.
pub fn lacks() -> Option<CpusetError> {
    if root::in_container() {
        // Its cgroups can be the guest's own. But the journal is in the container's /run, and the
        // guard ends with the container: a limit would stay, and nobody outside could lift it.
        return Some(CpusetError::Container(ROOT.into()));
    }
    cpusets::check(Path::new(ROOT), &set::isolated()).err()
}

/// Whether this is a container, in which nothing can be limited.
pub fn in_container() -> bool {
    matches!(lacks(), Some(CpusetError::Container(_)))
}

/// Returns whether an `unspin run` limits vCPUs, or may do so at any time.
pub fn at_work() -> bool {
    let folder = Path::new(FOLDER);
    journal::Journal::is_in(folder) && journal::Journal::is_held(folder)
}
