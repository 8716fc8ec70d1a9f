//! Keeps the scheduler loaded, or the limit on vCPUs at work.

use unspin_guest::confine::{Confiner, Rest};
use unspin_guest::run::{Options, Rule, RunError, Scheduler};
use unspin_guest::topology::Prober;
use unspin_model::class::chain;
use unspin_model::scheduler::Stats;
use unspin_report::printable;

/// What acts, as long as it can be kept.
pub struct Keeper {
    acts: Acts,
    /// Its figures, those of its end where it has ended.
    pub stats: Stats,
    /// Why it has ended.
    pub ended: Option<String>,
}

/// Of the thread that decides, which ends only if it panics.
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

    /// Lets a limit on vCPUs act.
    pub fn confine(confiner: Confiner) -> Keeper {
        let stats = confiner.stats();
        Keeper { acts: Acts::Confiner(confiner), stats, ended: None }
    }

    /// Does nothing.
    pub fn rest(rest: Rest) -> Keeper {
        let stats = rest.stats();
        Keeper { acts: Acts::Rest(rest), stats, ended: None }
    }

    /// Whether it does nothing.
    pub fn rests(&self) -> bool {
        matches!(self.acts, Acts::Rest(_))
    }

    /// Looks at it.
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

/// Finds out which vCPUs share a pCPU, where that matters: which of two is left says everything.
fn prober(options: &Options, stats: &Stats) -> Option<Prober> {
    let asks = options.topology && options.pack != Rule::Never && stats.vcpus > 2;
    asks.then(Prober::start)
}

/// The scheduler, loaded again where vCPUs have come or gone.
struct Kept {
    options: Options,
    scheduler: Option<Scheduler>,
    prober: Option<Prober>,
    /// For each vCPU the first one of those that share its pCPU.
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

    /// Where the number of vCPUs has changed, the kernel has ended it, and it is loaded again.
    /// Returns why it has ended for good.
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
        // The kernel quotes the names that tasks give themselves.
        note!("unspin: {}: loading it again", printable(&ended.reason));
        match Scheduler::start(&self.options) {
            Ok(scheduler) => {
                // What was found out is about other vCPUs.
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
        let sharing = |first: u32| -> Vec<u32> {
            let shares = |vcpu: &u32| self.stacks[*vcpu as usize] == first;
            (0..self.stacks.len() as u32).filter(shares).collect()
        };
        let stacks = (0..self.stacks.len() as u32).map(sharing).filter(|stack| stack.len() > 1);
        Stats { stacks: stacks.collect(), ..scheduler.stats() }
    }
}
