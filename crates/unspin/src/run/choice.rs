//! Which of the two actuators acts.

use std::path::PathBuf;

use anyhow::Context;
use unspin_guest::confine::{self, Confiner};
use unspin_guest::run::{NAME, Options, RunError, is_loaded};
use unspin_model::scheduler::Actuator;

use super::keeper::Keeper;

/// What the user wants.
#[derive(Clone, Copy)]
pub struct Choice {
    /// None: cpusets, and a scheduler in place of the kernel's where those are not to be had.
    pub actuator: Option<Actuator>,
    /// Of a scheduler in place of the kernel's.
    pub options: Options,
}

impl Choice {
    /// Starts what is wanted, or what is possible where nothing in particular is.
    pub fn start(self) -> anyhow::Result<Keeper> {
        if self.actuator == Some(Actuator::SchedExt) {
            return self.scheduler();
        }
        if is_loaded() {
            return Err(RunError::Taken(NAME.into()).into());
        }
        match Confiner::start() {
            Ok(confiner) => Ok(Keeper::confine(confiner)),
            Err(error) if self.actuator.is_none() && error.has_another_way() => {
                let either = |other| format!("nor can sched_ext be used: {other:#}");
                self.scheduler().map_err(|other| anyhow::Error::new(error).context(either(other)))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn scheduler(self) -> anyhow::Result<Keeper> {
        // What a killed one with the other actuator has left.
        confine::restore()?;
        Ok(Keeper::start(self.options)?)
    }
}

/// The cgroup for a command, where it cannot stay in this process's.
pub fn cgroup() -> anyhow::Result<Option<PathBuf>> {
    confine::own_cgroup().context("make a cgroup for the command")
}

/// Moves this process, and with it the commands that it starts, to where a limit reaches them.
pub fn leave_root() -> anyhow::Result<()> {
    let Some(folder) = cgroup()? else { return Ok(()) };
    let procs = folder.join("cgroup.procs");
    std::fs::write(&procs, "0").with_context(|| procs.display().to_string())
}
