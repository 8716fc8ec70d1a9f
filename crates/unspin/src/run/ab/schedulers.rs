//! Switches between the guest without unspin and with it.

use anyhow::bail;
use unspin_guest::ab::Switch;
use unspin_guest::confine::OwnCgroup;
use unspin_model::ab::Arm;
use unspin_model::scheduler::Actuator;

use crate::run::choice::{self, Choice};
use crate::run::keeper::Keeper;

/// The guest's current scheduler or limit.
pub struct Schedulers {
    choice: Choice,
    actuator: Actuator,
    /// `None` in rounds without unspin. Dropping the keeper returns the tasks to the kernel's
    /// scheduler.
    unspin: Option<Keeper>,
    /// The cgroup of this process in all rounds. Field order drops it after the last limit.
    _cgroup: Option<OwnCgroup>,
}

impl Schedulers {
    /// Starts without unspin. Fails if the actuator does not work.
    pub fn new(choice: Choice) -> anyhow::Result<Schedulers> {
        let actuator = choice.start()?.stats.actuator;
        let cgroup = match actuator {
            Actuator::Cpuset => choice::leave_root()?,
            Actuator::SchedExt => None,
        };
        // All rounds use the same actuator.
        let choice = Choice { actuator: Some(actuator), ..choice };
        Ok(Schedulers { choice, actuator, unspin: None, _cgroup: cgroup })
    }

    /// Returns the actuator of the rounds with unspin.
    pub fn actuator(&self) -> Actuator {
        self.actuator
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
