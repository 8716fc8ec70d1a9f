//! Chooses between the two actuators.

use anyhow::Context;
use unspin_guest::confine::{self, ConfineError, Confiner, CpusetError, OwnCgroup, Rest};
use unspin_guest::run::{NAME, Options, RunError, is_loaded};
use unspin_model::class::Class;
use unspin_model::scheduler::Actuator;

use super::keeper::Keeper;
use crate::failure::{class, of_class};

/// The user's choice.
#[derive(Clone, Copy)]
pub struct Choice {
    /// The actuator, or `None` for cpusets, and for sched-ext if cpusets are unavailable.
    pub actuator: Option<Actuator>,
    /// Whether unspin does nothing if the host's help suffices and the user names no actuator.
    pub rests: bool,
    /// Options of the sched-ext scheduler.
    pub options: Options,
}

impl Choice {
    /// Starts the chosen actuator, or an available one if the user chose none.
    pub fn start(self) -> anyhow::Result<Keeper> {
        only_root()?;
        // A scheduler acts on the whole guest as well, and no process outside the container could
        // query it.
        if let Some(error @ CpusetError::Container(_)) = confine::lacks() {
            return Err(error.into());
        }
        if self.actuator == Some(Actuator::SchedExt) {
            return scheduler_or_hint(self.scheduler(), confine::possible);
        }
        if is_loaded() {
            return Err(RunError::Taken(NAME.into()).into());
        }
        if let Some(rest) = self.rest() {
            // Lifts limits that a killed `unspin run` has left.
            confine::restore()?;
            return Ok(Keeper::rest(rest));
        }
        let confined = Confiner::start().map(Keeper::confine);
        cpusets_or_scheduler(confined, self.actuator, || self.scheduler())
    }

    /// Returns a keeper that does nothing if the host's help suffices.
    pub fn rest(self) -> Option<Rest> {
        let may = self.rests && self.actuator.is_none() && !confine::in_container();
        may.then(Rest::where_helped).flatten()
    }

    fn scheduler(self) -> anyhow::Result<Keeper> {
        // Lifts limits that a killed `unspin run` with the other actuator has left.
        confine::restore()?;
        Ok(Keeper::start(self.options)?)
    }
}

/// Returns the requested scheduler. If it fails, the error suggests cpusets if they work.
fn scheduler_or_hint<K>(
    scheduler: anyhow::Result<K>,
    cpusets_work: impl FnOnce() -> bool,
) -> anyhow::Result<K> {
    scheduler.map_err(|error| {
        let hints = class(&error) == Class::Unavailable && cpusets_work();
        if hints { hinted(&error, "`--actuator cpuset` works without it") } else { error }
    })
}

/// Returns the cpuset actuator. If cpusets are unavailable and the user did not name them, returns
/// a scheduler.
fn cpusets_or_scheduler<K>(
    confined: Result<K, ConfineError>,
    actuator: Option<Actuator>,
    scheduler: impl FnOnce() -> anyhow::Result<K>,
) -> anyhow::Result<K> {
    let error = match confined {
        Ok(keeper) => return Ok(keeper),
        Err(error) => error,
    };
    let has_another_way = error.has_another_way();
    let error = anyhow::Error::new(error);
    match actuator {
        _ if !has_another_way => Err(error),
        Some(_) => Err(hinted(&error, "`--actuator sched-ext` may work")),
        None => {
            let keeper = scheduler().map_err(|other| {
                let text = format!("{error:#}; and in place of cpusets: {other:#}");
                of_class(class(&other), format!("{text} (see `sudo unspin doctor`)"))
            })?;
            note!("unspin: {error:#}; so a scheduler replaces the kernel's");
            Ok(keeper)
        }
    }
}

/// Fails unless root runs the program. Only root may set and lift limits.
pub fn only_root() -> Result<(), RunError> {
    if nix::unistd::geteuid().is_root() { Ok(()) } else { Err(RunError::Root) }
}

fn hinted(error: &anyhow::Error, hint: &str) -> anyhow::Error {
    of_class(class(error), format!("{error:#}; {hint}"))
}

/// Makes a cgroup for a command if no limit would reach the command in this process's cgroup.
pub fn cgroup() -> anyhow::Result<Option<OwnCgroup>> {
    confine::own_cgroup().context("make a cgroup for the command")
}

/// Moves this process, and thus the commands that it starts, into a cgroup that limits reach. The
/// process moves back when the result is dropped.
pub fn leave_root() -> anyhow::Result<Option<OwnCgroup>> {
    let cgroup = cgroup()?;
    if let Some(cgroup) = &cgroup {
        cgroup.enter().with_context(|| format!("move into {}", cgroup.folder().display()))?;
    }
    Ok(cgroup)
}

#[cfg(test)]
mod tests {
    use unspin_guest::sense::SenseError;

    use super::*;

    type Started = anyhow::Result<&'static str>;

    fn no_controller() -> Result<&'static str, ConfineError> {
        Err(CpusetError::NoController("/cg".into()).into())
    }

    fn no_sched_ext() -> Started {
        Err(RunError::NoSchedExt.into())
    }

    fn not_asked() -> Started {
        panic!("no scheduler is to be started")
    }

    fn said(started: Started) -> (Class, String) {
        let error = started.unwrap_err();
        (class(&error), format!("{error:#}"))
    }

    #[test]
    fn cpusets_come_first() {
        for actuator in [None, Some(Actuator::Cpuset)] {
            let started = cpusets_or_scheduler(Ok("cpusets"), actuator, not_asked);
            assert_eq!(started.unwrap(), "cpusets");
        }
    }

    #[test]
    fn a_scheduler_acts_where_there_are_no_cpusets() {
        let started = cpusets_or_scheduler(no_controller(), None, || Ok("scheduler"));
        assert_eq!(started.unwrap(), "scheduler");
        let blind = Err(SenseError::NoSlowPaths.into());
        let started = cpusets_or_scheduler(blind, None, || Ok("scheduler"));
        assert_eq!(started.unwrap(), "scheduler");
    }

    #[test]
    fn no_scheduler_acts_where_cpusets_were_named() {
        let started = cpusets_or_scheduler(no_controller(), Some(Actuator::Cpuset), not_asked);
        let (class, text) = said(started);
        assert_eq!(class, Class::Unavailable);
        assert!(text.starts_with("/cg offers no cpuset controller"), "{text}");
        assert!(text.ends_with("; `--actuator sched-ext` may work"), "{text}");
    }

    #[test]
    fn where_a_scheduler_would_not_help_none_is_tried() {
        for actuator in [None, Some(Actuator::Cpuset)] {
            let taken = Err(CpusetError::Taken("/lock".into()).into());
            let (class, text) = said(cpusets_or_scheduler(taken, actuator, not_asked));
            assert_eq!(class, Class::Failed);
            assert!(text.starts_with("another `unspin run`") && !text.contains("sched-ext"));
        }
    }

    #[test]
    fn where_neither_works_both_reasons_are_said() {
        let (class, text) = said(cpusets_or_scheduler(no_controller(), None, no_sched_ext));
        assert_eq!(class, Class::Unavailable);
        assert!(text.starts_with("/cg offers no cpuset controller"), "{text}");
        let other = format!("; and in place of cpusets: {:#}", no_sched_ext().unwrap_err());
        assert!(text.ends_with(&format!("{other} (see `sudo unspin doctor`)")), "{text}");
        let taken = || -> Started { Err(RunError::Taken("other".into()).into()) };
        let (class, _) = said(cpusets_or_scheduler(no_controller(), None, taken));
        assert_eq!(class, Class::Failed, "it may pass");
    }

    #[test]
    fn a_scheduler_that_cannot_be_had_hints_at_cpusets_that_can() {
        let hint = "; `--actuator cpuset` works without it";
        let plain = said(no_sched_ext());
        let (class, text) = said(scheduler_or_hint(no_sched_ext(), || true));
        assert_eq!((class, text), (plain.0, format!("{}{hint}", plain.1)));
        assert_eq!(said(scheduler_or_hint(no_sched_ext(), || false)), plain);
        let taken = || -> Started { Err(RunError::Taken("other".into()).into()) };
        assert_eq!(said(scheduler_or_hint(taken(), || true)), said(taken()));
        assert_eq!(scheduler_or_hint(Ok("scheduler"), || true).unwrap(), "scheduler");
    }
}
