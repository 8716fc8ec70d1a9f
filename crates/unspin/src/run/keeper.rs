//! Keeps the scheduler loaded.

use unspin_guest::run::{Options, Rule, RunError, Scheduler};
use unspin_guest::topology::Prober;
use unspin_model::class::chain;
use unspin_model::scheduler::Stats;

/// The scheduler, as long as it can be kept.
pub struct Keeper {
    options: Options,
    scheduler: Option<Scheduler>,
    prober: Option<Prober>,
    /// For each vCPU the first one of those that share its pCPU.
    stacks: Vec<u32>,
    /// Its figures, those of its end where it has ended.
    pub stats: Stats,
    /// Why it has ended.
    pub ended: Option<String>,
}

impl Keeper {
    /// Loads the scheduler.
    pub fn start(options: Options) -> Result<Keeper, RunError> {
        let scheduler = Scheduler::start(&options)?;
        let stats = scheduler.stats();
        // Which of two vCPUs is left says everything.
        let asks = options.topology && options.pack != Rule::Never && stats.vcpus > 2;
        let prober = asks.then(|| Prober::start(stats.vcpus));
        let (scheduler, stacks, ended) = (Some(scheduler), Vec::new(), None);
        Ok(Keeper { options, scheduler, prober, stacks, stats, ended })
    }

    /// Looks at it. Where the number of vCPUs has changed, the kernel has ended it, and it is
    /// loaded again.
    pub fn step(&mut self) {
        let Some(scheduler) = &self.scheduler else { return };
        if let Some(found) = self.prober.as_ref().and_then(Prober::news) {
            self.stacks = found;
            self.share_stacks(scheduler);
        }
        self.stats = self.stats_of(scheduler);
        let Some(ended) = scheduler.ended() else { return };
        self.scheduler = None;
        if !ended.restart {
            self.ended = Some(format!("the kernel ended the scheduler: {}", ended.reason));
            return;
        }
        eprintln!("unspin: {}: loading it again", ended.reason);
        match Scheduler::start(&self.options) {
            Ok(scheduler) => {
                self.share_stacks(&scheduler);
                self.stats = self.stats_of(&scheduler);
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
            eprintln!("unspin: which vCPUs share a pCPU is not used: {}", chain(&error));
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
