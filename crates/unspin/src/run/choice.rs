//! Which of the two actuators acts.

use anyhow::Context;
use unspin_guest::confine::{self, Confiner, OwnCgroup, Rest};
use unspin_guest::run::{NAME, Options, RunError, is_loaded};
use unspin_model::class::Class;
use unspin_model::scheduler::Actuator;

use super::keeper::Keeper;
use crate::failure::{class, of_class};

/// What the user wants.
#[derive(Clone, Copy)]
pub struct Choice {
    /// None: cpusets, and a scheduler in place of the kernel's where those are not to be had.
    pub actuator: Option<Actuator>,
    /// Whether nothing is done where the host's help makes it needless and no actuator is named.
    pub rests: bool,
    /// Of a scheduler in place of the kernel's.
    pub options: Options,
}

impl Choice {
    /// Starts what is wanted, or what is possible where nothing in particular is.
    pub fn start(self) -> anyhow::Result<Keeper> {
        only_root()?;
        if self.actuator == Some(Actuator::SchedExt) {
            return self.scheduler().map_err(|error| match confine::possible() {
                true if class(&error) == Class::Unavailable => {
                    hinted(&error, "`--actuator cpuset` works without it")
                }
                _ => error,
            });
        }
        if is_loaded() {
            return Err(RunError::Taken(NAME.into()).into());
        }
        if let Some(rest) = self.rest() {
            // What a killed one has left.
            confine::restore()?;
            return Ok(Keeper::rest(rest));
        }
        let error = match Confiner::start() {
            Ok(confiner) => return Ok(Keeper::confine(confiner)),
            Err(error) => error,
        };
        let has_another_way = error.has_another_way();
        let error = anyhow::Error::new(error);
        match self.actuator {
            _ if !has_another_way => Err(error),
            Some(_) => Err(hinted(&error, "`--actuator sched-ext` may work")),
            None => {
                let keeper = self.scheduler().map_err(|other| {
                    let text = format!("{error:#}; and in place of cpusets: {other:#}");
                    of_class(Class::Unavailable, format!("{text} (see `sudo unspin doctor`)"))
                })?;
                note!("unspin: {error:#}; so a scheduler replaces the kernel's");
                Ok(keeper)
            }
        }
    }

    /// Nothing, where that is as good.
    pub fn rest(self) -> Option<Rest> {
        let may = self.rests && self.actuator.is_none() && !confine::in_container();
        may.then(Rest::where_helped).flatten()
    }

    fn scheduler(self) -> anyhow::Result<Keeper> {
        // What a killed one with the other actuator has left.
        confine::restore()?;
        Ok(Keeper::start(self.options)?)
    }
}

/// Root alone may limit vCPUs and lift limits.
pub fn only_root() -> Result<(), RunError> {
    if nix::unistd::geteuid().is_root() { Ok(()) } else { Err(RunError::Root) }
}

fn hinted(error: &anyhow::Error, hint: &str) -> anyhow::Error {
    of_class(class(error), format!("{error:#}; {hint}"))
}

/// The cgroup for a command, where it cannot stay in this process's.
pub fn cgroup() -> anyhow::Result<Option<OwnCgroup>> {
    confine::own_cgroup().context("make a cgroup for the command")
}

/// Moves this process, and with it the commands that it starts, to where a limit reaches them. It
/// is back when the result is dropped.
pub fn leave_root() -> anyhow::Result<Option<OwnCgroup>> {
    let cgroup = cgroup()?;
    if let Some(cgroup) = &cgroup {
        cgroup.enter().with_context(|| format!("move into {}", cgroup.folder().display()))?;
    }
    Ok(cgroup)
}
