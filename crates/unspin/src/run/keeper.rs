//! Keeps the scheduler loaded.

use unspin_guest::run::{Options, RunError, Scheduler};
use unspin_model::scheduler::Stats;

/// The scheduler, as long as it can be kept.
pub struct Keeper {
    options: Options,
    scheduler: Option<Scheduler>,
    /// Its figures, those of its end where it has ended.
    pub stats: Stats,
    /// Why it has ended.
    pub ended: Option<String>,
}

impl Keeper {
    /// Loads it.
    pub fn start(options: Options) -> Result<Keeper, RunError> {
        let scheduler = Scheduler::start(&options)?;
        let stats = scheduler.stats();
        Ok(Keeper { options, scheduler: Some(scheduler), stats, ended: None })
    }

    /// Looks at it. Where the number of vCPUs has changed, the kernel has ended it, and it is
    /// loaded again.
    pub fn step(&mut self) {
        let Some(scheduler) = &self.scheduler else { return };
        self.stats = scheduler.stats();
        let Some(ended) = scheduler.ended() else { return };
        self.scheduler = None;
        if !ended.restart {
            self.ended = Some(format!("the kernel ended the scheduler: {}", ended.reason));
            return;
        }
        eprintln!("unspin: {}: loading it again", ended.reason);
        match Scheduler::start(&self.options) {
            Ok(scheduler) => {
                self.stats = scheduler.stats();
                self.scheduler = Some(scheduler);
            }
            Err(error) => {
                self.ended = Some(format!("{}: it cannot be loaded again: {error}", ended.reason));
            }
        }
    }
}
