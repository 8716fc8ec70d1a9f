//! What decides how many vCPUs are used.

use unspin_policy::confine::{Confine, Facts};
use unspin_policy::steal_governor::StealGovernor;

/// How the number of vCPUs is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// As few as do the most useful work, `policy/confine.h`.
    Waste,
    /// All are used.
    Never,
    /// By the share of time that they are off, `policy/steal_governor.h`: a baseline.
    StealGovernor,
}

/// A rule at work.
pub(super) enum Decider {
    Waste(Box<Confine>),
    Never(u32),
    StealGovernor { governor: StealGovernor, usage: u32 },
}

impl Decider {
    /// All of so many vCPUs are in use, and nothing has been decided yet.
    pub(super) fn new(rule: Rule, vcpus: u32) -> Decider {
        match rule {
            Rule::Waste => Decider::Waste(Box::new(Confine::new(vcpus))),
            Rule::Never => Decider::Never(vcpus),
            Rule::StealGovernor => {
                Decider::StealGovernor { governor: StealGovernor::new(vcpus), usage: vcpus }
            }
        }
    }

    /// A window has passed; how many to use from now on.
    pub(super) fn step(&mut self, facts: &Facts, now_ns: u64) -> u32 {
        match self {
            Decider::Waste(confine) => confine.step(facts, now_ns),
            Decider::Never(vcpus) => *vcpus,
            Decider::StealGovernor { governor, usage } => {
                *usage = governor.step(facts.off_m, now_ns);
                *usage
            }
        }
    }

    /// How many are in use.
    pub(super) fn in_use(&self) -> u32 {
        match self {
            Decider::Waste(confine) => confine.in_use(),
            Decider::Never(usage) | Decider::StealGovernor { usage, .. } => *usage,
        }
    }

    /// Whether spins alone make it decide: without them, nobody need look.
    pub(super) fn goes_by_spins(&self) -> bool {
        !matches!(self, Decider::StealGovernor { .. })
    }

    /// Spins woke who decides, who had rested.
    pub(super) fn wake(&mut self) {
        if let Decider::Waste(confine) = self {
            confine.wake();
        }
    }

    /// Whether the number in use is being tried.
    pub(super) fn on_trial(&self) -> bool {
        self.confine().is_some_and(Confine::on_trial)
    }

    /// Whether it is compared with fewer, which are in use in some parts of the trial.
    pub(super) fn tries_fewer(&self) -> bool {
        self.confine().is_some_and(Confine::tries_fewer)
    }

    /// Whether vCPUs that are not in use are to be isolated.
    pub(super) fn isolates(&self, now_ns: u64) -> bool {
        self.confine().is_some_and(|confine| confine.isolates(now_ns))
    }

    /// Trials of fewer vCPUs and of more, and those that were kept.
    pub(super) fn trials(&self) -> [[u64; 2]; 2] {
        self.confine().map_or([[0; 2]; 2], |confine| [confine.trials_fewer, confine.trials_more])
    }

    fn confine(&self) -> Option<&Confine> {
        match self {
            Decider::Waste(confine) => Some(confine),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The usage after two seconds in which of four vCPUs two were off and spun.
    fn usage(rule: Rule) -> u32 {
        let facts =
            Facts { on_m: 2_000, off_m: 2_000, spin_m: 3_000, paths: 100, ..Facts::default() };
        let mut decider = Decider::new(rule, 4);
        (1..=200).for_each(|window| {
            decider.step(&facts, window * 10_000_000);
        });
        decider.in_use()
    }

    #[test]
    fn each_rule_decides_in_its_own_way() {
        assert_eq!(usage(Rule::Never), 4);
        // One a second.
        assert_eq!(usage(Rule::StealGovernor), 3);
        let mut decider = Decider::new(Rule::Waste, 4);
        let facts =
            Facts { on_m: 2_000, off_m: 2_000, spin_m: 3_000, paths: 100, ..Facts::default() };
        let first = (1..=20).find(|window| decider.step(&facts, window * 10_000_000) < 4);
        assert!(first.is_some() && decider.on_trial() && decider.tries_fewer());
        assert_eq!(decider.trials()[0][0], 1);
    }
}
