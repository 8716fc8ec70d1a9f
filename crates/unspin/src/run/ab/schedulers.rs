//! The kernel's own scheduler, and unspin.

use anyhow::bail;
use unspin_guest::ab::Switch;
use unspin_guest::run::{Options, RunError};
use unspin_model::ab::Arm;

use crate::run::keeper::Keeper;

/// What schedules now.
pub struct Schedulers {
    options: Options,
    /// None while the kernel's own does. Dropping it gives the tasks back.
    unspin: Option<Keeper>,
}

impl Schedulers {
    /// The kernel's own schedules. Fails if unspin cannot.
    pub fn new(options: Options) -> Result<Schedulers, RunError> {
        drop(Keeper::start(options)?);
        Ok(Schedulers { options, unspin: None })
    }
}

impl Switch<anyhow::Error> for Schedulers {
    fn start(&mut self, arm: Arm) -> anyhow::Result<()> {
        self.unspin = None;
        if arm == Arm::Unspin {
            self.unspin = Some(Keeper::start(self.options)?);
        }
        Ok(())
    }

    fn check(&mut self) -> anyhow::Result<()> {
        let Some(keeper) = &mut self.unspin else { return Ok(()) };
        keeper.step();
        match &keeper.ended {
            Some(why) => bail!("{why}: the comparison ends here"),
            None => Ok(()),
        }
    }
}
