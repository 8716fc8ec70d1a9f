//! The guest without unspin, and with it.

use anyhow::bail;
use unspin_guest::ab::Switch;
use unspin_model::ab::Arm;
use unspin_model::scheduler::Actuator;

use crate::run::choice::{self, Choice};
use crate::run::keeper::Keeper;

/// What schedules now.
pub struct Schedulers {
    choice: Choice,
    /// None while the kernel's own does. Dropping it gives the tasks back.
    unspin: Option<Keeper>,
}

impl Schedulers {
    /// Without unspin. Fails if it cannot act.
    pub fn new(choice: Choice) -> anyhow::Result<Schedulers> {
        let actuator = choice.start()?.stats.actuator;
        if actuator == Actuator::Cpuset {
            choice::leave_root()?;
        }
        // The same one in all rounds.
        Ok(Schedulers { choice: Choice { actuator: Some(actuator), ..choice }, unspin: None })
    }
}

impl Switch<anyhow::Error> for Schedulers {
    fn start(&mut self, arm: Arm) -> anyhow::Result<()> {
        self.unspin = None;
        if arm == Arm::Unspin {
            self.unspin = Some(self.choice.start()?);
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
