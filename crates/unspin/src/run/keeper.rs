//! Keeps the scheduler loaded, or the limit on vCPUs active.

use std::collections::BTreeMap;

use unspin_guest::confine::{Confiner, Rest};
use unspin_guest::run::{Options, Rule, RunError, Scheduler};
use unspin_guest::topology::Prober;
use unspin_model::class::chain;
use unspin_model::scheduler::Stats;
use unspin_report::printable;

/// The active actuator.
pub struct Keeper {
    acts: Acts,
    /// Its latest figures; after its end, the final ones.
    pub stats: Stats,
    /// The reason of its end.
    pub ended: Option<String>,
}

/// The reason if the deciding thread has ended. The thread ends only by a panic.
const GONE: &str = "the thread that limits vCPUs has ended, and the limit is lifted: please report \
     what it printed";

enum Acts {
    Confiner(Confiner),
    Rest(Rest),
    Scheduler(Box<Kept>),
}

impl Keeper {
    /// Loads the scheduler.
    pub fn start(options: Options) -> Result<Keeper, RunError> {
        let (kept, stats) = Kept::start(options)?;
        Ok(Keeper { acts: Acts::Scheduler(Box::new(kept)), stats, ended: None })
    }

    /// Wraps a limit on vCPUs, which is already active.
    pub fn confine(confiner: Confiner) -> Keeper {
        let stats = confiner.stats();
        Keeper { acts: Acts::Confiner(confiner), stats, ended: None }
    }

    /// Returns a keeper that does nothing.
    pub fn rest(rest: Rest) -> Keeper {
        let stats = rest.stats();
        Keeper { acts: Acts::Rest(rest), stats, ended: None }
    }

    /// Returns whether the keeper does nothing.
    pub fn rests(&self) -> bool {
        matches!(self.acts, Acts::Rest(_))
    }

    /// Updates the figures, and notices the actuator's end.
    pub fn step(&mut self) {
        match &mut self.acts {
            Acts::Scheduler(kept) => self.ended = kept.step(&mut self.stats),
            Acts::Rest(rest) => self.stats = rest.stats(),
            Acts::Confiner(confiner) => {
                self.stats = confiner.stats();
                if confiner.has_ended() {
                    self.ended = Some(GONE.into());
                }
            }
        }
    }
}

/// Starts to find out which vCPUs share a pCPU, if the scheduler uses that. With two vCPUs, the
/// answer does not matter.
fn prober(options: &Options, stats: &Stats) -> Option<Prober> {
    let asks = options.topology && options.pack != Rule::Never && stats.vcpus > 2;
    asks.then(Prober::start)
}

/// The scheduler. It is loaded again when vCPUs come or go.
struct Kept {
    options: Options,
    scheduler: Option<Scheduler>,
    prober: Option<Prober>,
    /// For each vCPU, the first vCPU that shares its pCPU.
    stacks: Vec<u32>,
    ended: Option<String>,
}

impl Kept {
    fn start(options: Options) -> Result<(Kept, Stats), RunError> {
        let scheduler = Scheduler::start(&options)?;
        let stats = scheduler.stats();
        let prober = prober(&options, &stats);
        let (scheduler, stacks, ended) = (Some(scheduler), Vec::new(), None);
        Ok((Kept { options, scheduler, prober, stacks, ended }, stats))
    }

    /// Loads the scheduler again if the kernel ended it because the number of vCPUs changed.
    /// Returns the reason if the scheduler has ended for good.
    fn step(&mut self, stats: &mut Stats) -> Option<String> {
        self.look(stats);
        self.ended.clone()
    }

    fn look(&mut self, stats: &mut Stats) {
        let Some(scheduler) = &self.scheduler else { return };
        if let Some(found) = self.prober.as_ref().and_then(Prober::news) {
            self.stacks = found;
            self.share_stacks(scheduler);
        }
        *stats = self.stats_of(scheduler);
        let Some(ended) = scheduler.ended() else { return };
        self.scheduler = None;
        if !ended.restart {
            self.ended = Some(format!("the kernel ended the scheduler: {}", ended.reason));
            return;
        }
        // The kernel quotes the names of tasks, which can contain escape sequences.
        note!("unspin: {}: loading it again", printable(&ended.reason));
        match Scheduler::start(&self.options) {
            Ok(scheduler) => {
                // The old stacks describe the previous set of vCPUs.
                self.stacks.clear();
                *stats = self.stats_of(&scheduler);
                self.prober = prober(&self.options, stats);
                self.scheduler = Some(scheduler);
            }
            Err(error) => {
                self.ended =
                    Some(format!("{}: it cannot be loaded again: {}", ended.reason, chain(&error)));
            }
        }
    }

    fn share_stacks(&self, scheduler: &Scheduler) {
        if let Err(error) = scheduler.share_pcpus(&self.stacks) {
            note!("unspin: which vCPUs share a pCPU is not used: {}", chain(&error));
        }
    }

    fn stats_of(&self, scheduler: &Scheduler) -> Stats {
        let mut stacks: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (vcpu, first) in (0..).zip(&self.stacks) {
            stacks.entry(*first).or_default().push(vcpu);
        }
        let stacks = stacks.into_values().filter(|stack| stack.len() > 1);
        Stats { stacks: stacks.collect(), ..scheduler.stats() }
    }
}
