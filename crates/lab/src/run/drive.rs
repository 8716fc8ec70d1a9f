//! Walks a host through a schedule.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use unspin_host::Host;
use unspin_model::FailureKind;
use unspin_wire::{BootSpec, Booted, Failure, RunOutput, RunSpec};

use super::schedule::{Attempt, Schedule, Step};
use super::{Finish, LabError};
use crate::experiment::{PlannedBoot, PlannedRun};

/// The experiment, as the driver sees it: what is to be done, and who is to know what was.
pub trait Bench: Sync {
    /// What to boot.
    fn boot_spec(&self, boot: &PlannedBoot) -> Result<BootSpec, Failure>;

    /// What to run.
    fn run_spec(&self, boot: &PlannedBoot, run: &PlannedRun) -> RunSpec;

    /// VMs are about to boot on a lane; returns the boot's number.
    fn booting(&self, lane: usize, boot: &PlannedBoot) -> u32;

    /// A run ended. Returns whether its guest can have another one.
    fn ran(&self, turn: &Turn, output: RunOutput) -> Result<bool, LabError>;

    /// An attempt failed.
    fn failed(&self, turn: &Turn, failure: &Failure) -> Result<(), LabError>;
}

/// An attempt at a run, with the boot that it had.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The planned boot.
    pub boot: PlannedBoot,
    /// The attempt.
    pub attempt: Attempt,
    /// The boot's number, and what came up; `None` where nothing did.
    pub up: Option<(u32, Booted)>,
    /// When the run began; where nothing came up, when the boot did.
    pub began: SystemTime,
    /// Real seconds that the boot took.
    pub boot_real_s: f64,
    /// Real seconds that the run took.
    pub run_real_s: f64,
}

/// Takes steps on a lane until the schedule is done or stopped.
///
/// # Errors
/// Those of the bench: results that cannot be written stop every lane.
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

/// A boot under way: its number, what came of it, and its real seconds.
struct Up {
    boot: PlannedBoot,
    number: u32,
    booted: Result<Booted, Failure>,
    began: SystemTime,
    real_s: f64,
}

impl Driver<'_> {
    /// Who ends us may end QEMU, too, as `systemctl stop` does. Then its end is not its fault.
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
