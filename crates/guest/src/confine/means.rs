//! The means that keep tasks on fewer vCPUs: cgroups, or unspin's own scheduler.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::libbpf_sys::{bpf_prog_test_run_opts, bpf_test_run_opts};
use unspin_model::scheduler::{Actuator, Limits};

use super::cpusets::{Cpusets, How};
use super::error::LimitError;
use super::root::InRoot;
use super::{ROOT, set};

/// How long a scheduler's vCPUs may take to release their tasks, and the pause between two checks.
const PATIENCE: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(1);
/// `WANT_REFUSED` of bpf/sched/run.h.
const REFUSED: u32 = 1 << 31;

/// The means of limiting.
pub(super) enum Means {
    Cgroups { cpusets: Box<Cpusets>, in_root: InRoot },
    Queues(Queues),
}

/// The queues of a scheduler, which itself chooses the vCPUs to use.
pub struct Queues {
    /// The BPF program `want_vcpus` of bpf/run.bpf.c.
    program: OwnedFd,
}

impl Queues {
    pub(crate) fn new(program: OwnedFd) -> Queues {
        Queues { program }
    }

    /// Makes the scheduler use so many vCPUs; 0 means all. Waits until the others have released
    /// their tasks, which takes some time if they spin with interrupts disabled.
    fn want(&self, vcpus: u32) -> Result<(), LimitError> {
        let began = Instant::now();
        loop {
            match self.ask_for(vcpus)? {
                0 => return Ok(()),
                REFUSED => return Err(LimitError::Stuck),
                _ if began.elapsed() >= PATIENCE => return Ok(()),
                _ => thread::sleep(PAUSE),
            }
        }
    }

    /// Requests the number of vCPUs. Returns about how many of the others still run a task.
    fn ask_for(&self, mut vcpus: u32) -> Result<u32, LimitError> {
        let mut options = bpf_test_run_opts {
            sz: size_of::<bpf_test_run_opts>() as u64,
            ctx_in: (&raw mut vcpus).cast(),
            ctx_size_in: size_of::<u32>() as u32,
            ..bpf_test_run_opts::default()
        };
        // SAFETY: the program is unspin's own, and its argument outlives the call.
        match unsafe { bpf_prog_test_run_opts(self.program.as_raw_fd(), &mut options) } {
            0 => Ok(options.retval),
            error => Err(LimitError::Queues(io::Error::from_raw_os_error(-error))),
        }
    }
}

impl Means {
    pub(super) fn actuator(&self) -> Actuator {
        match self {
            Means::Cgroups { .. } => Actuator::Cpuset,
            Means::Queues(_) => Actuator::SchedExt,
        }
    }

    /// Returns the vCPUs that tasks may use while nothing is limited.
    ///
    /// # Errors
    /// The kernel does not list them.
    pub(super) fn usable(&self) -> io::Result<Vec<u32>> {
        match self {
            Means::Cgroups { .. } => set::usable(Path::new(ROOT)),
            Means::Queues(_) => set::online(),
        }
    }

    /// Limits tasks to the vCPUs `keep`; `spare` are all others.
    pub(super) fn limit(
        &mut self,
        keep: &[u32],
        spare: &[u32],
        how: How,
    ) -> Result<(), LimitError> {
        match self {
            Means::Cgroups { cpusets, .. } => {
                Ok(cpusets.limit(&set::list(keep), &set::list(spare), how)?)
            }
            Means::Queues(queues) => queues.want(keep.len() as u32),
        }
    }

    /// Lets tasks use all vCPUs again.
    pub(super) fn lift(&mut self, brake: bool) -> Result<(), LimitError> {
        match self {
            Means::Cgroups { cpusets, .. } => Ok(cpusets.lift(brake)?),
            Means::Queues(queues) => queues.want(0),
        }
    }

    /// Replaces the list of all vCPUs.
    pub(super) fn replace_all(&mut self, usable: &[u32]) -> Result<(), LimitError> {
        match self {
            Means::Cgroups { cpusets, .. } => {
                Ok(cpusets.replace_all(&set::all(usable).map_err(LimitError::Unknown)?)?)
            }
            Means::Queues(_) => Ok(()),
        }
    }

    /// Looks for processes that no limit reaches, if the last look is old.
    pub(super) fn refresh(&mut self) {
        if let Means::Cgroups { in_root, .. } = self {
            in_root.refresh();
        }
    }

    /// Returns whether such processes compute, so that a limit alone does little.
    pub(super) fn misses_work(&self) -> bool {
        matches!(self, Means::Cgroups { in_root, .. } if in_root.busy)
    }

    /// Returns what is limited now.
    pub(super) fn limits(&self) -> Limits {
        let Means::Cgroups { cpusets, in_root } = self else { return Limits::default() };
        Limits {
            cgroups: cpusets.limited() as u64,
            left_alone: cpusets.left_alone().map(str::to_owned).collect(),
            in_root: if cpusets.reaches_root() { 0 } else { in_root.count },
            not_isolated: cpusets.refused().map(str::to_owned),
            ..Limits::default()
        }
    }
}
