//! Which of the two actuators acts.

use anyhow::Context;
use unspin_guest::confine::{self, ConfineError, Confiner, CpusetError, OwnCgroup, Rest};
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
        // A scheduler acts on the whole guest as well, and nobody outside could ask for its state.
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
            // What a killed one has left.
            confine::restore()?;
            return Ok(Keeper::rest(rest));
        }
        let confined = Confiner::start().map(Keeper::confine);
        cpusets_or_scheduler(confined, self.actuator, || self.scheduler())
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

/// The scheduler that was asked for, or an error that names the other actuator where it works.
fn scheduler_or_hint<K>(
    scheduler: anyhow::Result<K>,
    cpusets_work: impl FnOnce() -> bool,
) -> anyhow::Result<K> {
    scheduler.map_err(|error| {
        let hints = class(&error) == Class::Unavailable && cpusets_work();
        if hints { hinted(&error, "`--actuator cpuset` works without it") } else { error }
    })
}

/// What limits by cpusets, or a scheduler where those are not to be had and nobody named them.
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
                of_class(Class::Unavailable, format!("{text} (see `sudo unspin doctor`)"))
            })?;
            note!("unspin: {error:#}; so a scheduler replaces the kernel's");
            Ok(keeper)
        }
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
