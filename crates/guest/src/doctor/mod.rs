//! What a machine means for spinning: who helps against it, and what can be done.

mod abilities;
mod help;

use unspin_model::diagnosis::{Diagnosis, GuestMachine};

use crate::machine::{Facts, confidential, hypervisor};

/// Judges a machine.
pub fn diagnose(facts: &Facts) -> Diagnosis {
    Diagnosis {
        machine: GuestMachine {
            confidential: confidential(facts),
            hypervisor: hypervisor(facts),
            cpus: facts.cpus,
            kernel: facts.kernel.clone(),
            clocksource: facts.clocksource.clone(),
            spinlock: help::spinlock(facts),
            steal_s: facts.steal_ticks.map(|ticks| ticks as f64 / 100.0),
        },
        help: help::all(facts),
        abilities: abilities::all(facts),
    }
}
