//! The rules that decide how many vCPUs are used.

use unspin_policy::confine::{Confine, Facts};
use unspin_policy::steal_governor::StealGovernor;

/// The way to find the number of vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Use the fewest vCPUs that do the most useful work (`policy/confine.h`).
    Waste,
    /// Use all vCPUs.
    Never,
    /// Go by the share of time that vCPUs are off (`policy/steal_governor.h`): a baseline.
    StealGovernor,
}

/// The state of a rule.
pub(super) enum Decider {
    Waste(Box<Confine>),
    Never(u32),
    StealGovernor { governor: StealGovernor, usage: u32 },
}

impl Decider {
    /// Starts with all vCPUs in use, and nothing decided.
    pub(super) fn new(rule: Rule, vcpus: u32) -> Decider {
        match rule {
            Rule::Waste => Decider::Waste(Box::new(Confine::new(vcpus))),
            Rule::Never => Decider::Never(vcpus),
            Rule::StealGovernor => {
                Decider::StealGovernor { governor: StealGovernor::new(vcpus), usage: vcpus }
            }
        }
    }

    /// Evaluates a window, and returns the number of vCPUs to use from now on.
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

    /// Returns the number of vCPUs in use.
    pub(super) fn in_use(&self) -> u32 {
        match self {
            Decider::Waste(confine) => confine.in_use(),
            Decider::Never(usage) | Decider::StealGovernor { usage, .. } => *usage,
        }
    }

    /// Returns whether only spins trigger a decision: without them, the loop need not look.
    pub(super) fn goes_by_spins(&self) -> bool {
        !matches!(self, Decider::StealGovernor { .. })
    }

    /// Notes that spins have ended a rest of the control loop.
    pub(super) fn wake(&mut self) {
        if let Decider::Waste(confine) = self {
            confine.wake();
        }
    }

    /// Returns whether a trial of the number of vCPUs is running.
    pub(super) fn on_trial(&self) -> bool {
        self.confine().is_some_and(Confine::on_trial)
    }

    /// Returns whether the trial is of fewer vCPUs, which are in use in some of its parts.
    pub(super) fn tries_fewer(&self) -> bool {
        self.confine().is_some_and(Confine::tries_fewer)
    }

    /// Returns whether the trial has fewer vCPUs in use now.
    pub(super) fn has_fewer(&self) -> bool {
        self.confine().is_some_and(Confine::has_fewer)
    }

    /// Returns whether the unused vCPUs are to be isolated.
    pub(super) fn isolates(&self, now_ns: u64) -> bool {
        self.confine().is_some_and(|confine| confine.isolates(now_ns))
    }

    /// Returns the trials of fewer and of more vCPUs: how many were made, and how many were kept.
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

    /// Returns the usage after two seconds in which two of four vCPUs were off and others spun.
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
        // The governor gives up one vCPU per second.
        assert_eq!(usage(Rule::StealGovernor), 3);
        let mut decider = Decider::new(Rule::Waste, 4);
        let facts =
            Facts { on_m: 2_000, off_m: 2_000, spin_m: 3_000, paths: 100, ..Facts::default() };
        let first = (1..=20).find(|window| decider.step(&facts, window * 10_000_000) < 4);
        assert!(first.is_some() && decider.on_trial() && decider.tries_fewer());
        assert_eq!(decider.trials()[0][0], 1);
    }
}
