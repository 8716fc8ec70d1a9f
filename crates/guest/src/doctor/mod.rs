//! Judges a machine's spinning: the help against it, and the ways to cure it.

mod distribution;
mod help;
mod verbs;

use unspin_model::diagnosis::{Diagnosis, GuestMachine};

use crate::machine::{Facts, confidential, host_helps, hypervisor, spinlock};

/// Whether another kernel would let `run` act. None does with isolcpus=, nor in a container, whose
/// distribution is not that of the kernel either.
fn needs_a_kernel(facts: &Facts) -> bool {
    let acts = facts.cpuset || facts.sched_ext.is_some();
    !acts && !facts.isolates() && !facts.container && !host_helps(facts)
}

/// Judges a machine.
pub fn diagnose(facts: &Facts) -> Diagnosis {
    let shares = facts.steal_ticks.zip(facts.cpu_ticks.filter(|ticks| *ticks > 0));
    Diagnosis {
        machine: GuestMachine {
            confidential: confidential(facts),
            hypervisor: hypervisor(facts),
            cpus: facts.cpus,
            kernel: facts.kernel.clone(),
            clocksource: facts.clocksource.clone(),
            spinlock: spinlock(facts),
            steal_s: facts.steal_ticks.map(|ticks| ticks as f64 / 100.0),
            steal_share: shares.map(|(steal, all)| steal as f64 / all as f64),
        },
        help: help::all(facts),
        verbs: verbs::all(facts),
        kernel_advice: needs_a_kernel(facts).then(|| distribution::advice(facts)),
    }
}
