//! Drives a host through a schedule.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use unspin_host::Host;
use unspin_model::FailureKind;
use unspin_wire::{BootSpec, Booted, Failure, RunOutput, RunSpec};

use super::schedule::{Attempt, Schedule, Step};
use super::{Finish, LabError};
use crate::experiment::{PlannedBoot, PlannedRun};

/// The experiment as the driver sees it: the source of specifications and the receiver of results.
pub trait Bench: Sync {
    /// Returns the specification of a boot's VMs.
    fn boot_spec(&self, boot: &PlannedBoot) -> Result<BootSpec, Failure>;

    /// Returns the specification of a run.
    fn run_spec(&self, boot: &PlannedBoot, run: &PlannedRun) -> RunSpec;

    /// Takes note that VMs are about to boot on a lane. Returns the boot's number.
    fn booting(&self, lane: usize, boot: &PlannedBoot) -> u32;

    /// Takes a run's output. Returns whether its guest can be used for another run.
    fn ran(&self, turn: &Turn, output: RunOutput) -> Result<bool, LabError>;

    /// Takes note of a failed attempt.
    fn failed(&self, turn: &Turn, failure: &Failure) -> Result<(), LabError>;
}

/// An attempt at a run, and the boot that it used.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The planned boot.
    pub boot: PlannedBoot,
    /// The attempt.
    pub attempt: Attempt,
    /// The boot's number and the VMs that came up; `None` if the boot failed.
    pub up: Option<(u32, Booted)>,
    /// Start of the run or, if the boot failed, of the boot.
    pub began: SystemTime,
    /// Duration of the boot in real seconds.
    pub boot_real_s: f64,
    /// Duration of the run in real seconds.
    pub run_real_s: f64,
}

/// Carries out the steps of a lane until the schedule is done or stopped.
///
/// # Errors
/// The errors of the bench. An error while it writes results stops every lane.
pub fn drive(
    bench: &dyn Bench,
    schedule: &Mutex<Schedule>,
    lane: usize,
    host: &mut dyn Host,
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Result<Finish, LabError> {
    let mut driver = Driver { bench, schedule, lane, host, interrupted, up: None };
    loop {
        if interrupted() {
            lock(schedule).stop();
        }
        let step = lock(schedule).next(lane);
        let done = match step {
            Step::Boot(boot) => {
                driver.boot(&boot);
                driver.note_boot(&boot)
            }
            Step::Run(attempt) => driver.run(*attempt),
            Step::Halt => {
                driver.host.halt();
                driver.up = None;
                Ok(())
            }
            Step::Done if interrupted() => return Ok(Finish::Interrupted),
            Step::Done => return Ok(Finish::Complete),
        };
        if let Err(error) = done {
            lock(schedule).stop();
            driver.host.halt();
            return Err(error);
        }
    }
}

struct Driver<'a> {
    bench: &'a dyn Bench,
    schedule: &'a Mutex<Schedule>,
    lane: usize,
    host: &'a mut dyn Host,
    interrupted: &'a (dyn Fn() -> bool + Sync),
    up: Option<Up>,
}

/// A boot under way or its result: its number, its VMs or its failure, and its duration in seconds.
struct Up {
    boot: PlannedBoot,
    number: u32,
    booted: Result<Booted, Failure>,
    began: SystemTime,
    real_s: f64,
}

impl Driver<'_> {
    /// Reports a failure as an interruption if this process was interrupted, too. `systemctl stop`,
    /// for example, ends QEMU together with this process; QEMU's exit is then not a failure.
    fn or_interrupted(&self, failure: Failure) -> Failure {
        match (self.interrupted)() {
            true => Failure { kind: FailureKind::Interrupted, ..failure },
            false => failure,
        }
    }

    fn boot(&mut self, boot: &PlannedBoot) {
        let number = self.bench.booting(self.lane, boot);
        let (began, started) = (SystemTime::now(), Instant::now());
        let booted = self.bench.boot_spec(boot).and_then(|spec| self.host.boot(&spec));
        let booted = booted.map_err(|failure| self.or_interrupted(failure));
        let real_s = started.elapsed().as_secs_f64();
        self.up = Some(Up { boot: boot.clone(), number, booted, began, real_s });
    }

    fn note_boot(&mut self, boot: &PlannedBoot) -> Result<(), LabError> {
        let Some(Up { booted: Err(failure), began, real_s, .. }) = &self.up else {
            lock(self.schedule).booted(self.lane);
            return Ok(());
        };
        let (failure, began, boot_real_s) = (failure.clone(), *began, *real_s);
        self.up = None;
        let turn = |attempt| Turn {
            boot: boot.clone(),
            attempt,
            up: None,
            began,
            boot_real_s,
            run_real_s: 0.0,
        };
        let failed = lock(self.schedule).failed(self.lane, failure.kind);
        failed.into_iter().try_for_each(|attempt| self.bench.failed(&turn(attempt), &failure))
    }

    fn run(&mut self, attempt: Attempt) -> Result<(), LabError> {
        let Some(Up { boot, number, booted: Ok(booted), real_s, .. }) = &self.up else {
            return Ok(());
        };
        let spec = self.bench.run_spec(boot, &attempt.run);
        let (began, started) = (SystemTime::now(), Instant::now());
        let result = self.host.run(&spec).map_err(|failure| self.or_interrupted(failure));
        let mut turn = Turn {
            boot: boot.clone(),
            attempt,
            up: Some((*number, booted.clone())),
            began,
            boot_real_s: *real_s,
            run_real_s: started.elapsed().as_secs_f64(),
        };
        match result {
            Ok(mut output) => {
                if let Some(booted) = output.booted.take() {
                    turn.up = Some((*number, booted));
                }
                let usable = self.bench.ran(&turn, output)?;
                lock(self.schedule).ran(self.lane, usable);
                Ok(())
            }
            Err(failure) => {
                self.up = None;
                let failed = lock(self.schedule).failed(self.lane, failure.kind);
                failed.into_iter().try_for_each(|attempt| {
                    turn.attempt = attempt;
                    self.bench.failed(&turn, &failure)
                })
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
