//! Invariants of a virtual-time run, one file each. They read the record only, so they
//! share no code with the host that wrote it: a bug in the host is caught, not repeated.

mod accounts;
mod no_idle_pcpu;
mod one_pcpu;
mod order;
mod quota;
mod shares;
mod states;

use crate::virtual_time::{Event, Record};

/// What the checkers need to know about the host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    /// Virtual nanoseconds that a pCPU runs before the host looks again.
    pub quantum_ns: u64,
    /// Whether every VM counts the same, however many vCPUs it has.
    pub per_vm: bool,
    /// Whether vCPUs give their pCPU away: by pause-loop exits or directed yields.
    pub yields: bool,
    /// The VM of each entity, by index; VM 0 is the guest.
    pub vm_of: Vec<u16>,
    /// The pCPU that each entity is held to, by index; those beyond may run on any.
    pub held_to: Vec<u8>,
    /// Weights of VMs, by their number; 1 for those beyond.
    pub weights: Vec<f64>,
    /// What the guest may run in a period on all pCPUs together, and the period, nanoseconds.
    pub quota_ns: Option<(u64, u64)>,
}

impl Rules {
    /// The VM of an entity.
    fn vm(&self, entity: usize) -> u16 {
        self.vm_of.get(entity).copied().unwrap_or(0)
    }

    /// The weight of a VM.
    fn weight(&self, vm: u16) -> f64 {
        self.weights.get(usize::from(vm)).copied().unwrap_or(1.0)
    }
}

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invariant `{checker}` is broken at virtual {t_ns} ns (byte {offset} of the record): {what}"
)]
pub struct Violation {
    /// The invariant.
    pub checker: &'static str,
    /// Virtual time, nanoseconds.
    pub t_ns: u64,
    /// Offset of the event in the record; its length for the end.
    pub offset: u64,
    /// What was found.
    pub what: String,
}

type Checker = fn(&Record, &Rules) -> Result<(), Found>;

/// What a checker found: virtual time, offset, words.
struct Found(u64, u64, String);

impl Found {
    fn at(event: &Event, what: impl Into<String>) -> Found {
        Found(event.t_ns, event.offset, what.into())
    }

    fn at_end(record: &Record, what: impl Into<String>) -> Found {
        let last = record.events.last().map_or(0, |event| event.offset);
        Found(record.end_ns, last, what.into())
    }
}

/// The invariants by name. A checker may rely on those before it.
const CHECKERS: [(&str, Checker); 7] = [
    ("order", order::check),
    ("one-pcpu", one_pcpu::check),
    ("states", states::check),
    ("accounts", accounts::check),
    ("no-idle-pcpu", no_idle_pcpu::check),
    ("shares", shares::check),
    ("quota", quota::check),
];

/// Names of the invariants, in the order in which they are checked.
pub fn names() -> impl Iterator<Item = &'static str> {
    CHECKERS.iter().map(|(name, _)| *name)
}

/// Holds a record to every invariant.
///
/// # Errors
/// The first [`Violation`] of the first invariant that is broken.
pub fn check(record: &Record, rules: &Rules) -> Result<(), Violation> {
    for (checker, holds) in CHECKERS {
        holds(record, rules).map_err(|Found(t_ns, offset, what)| Violation {
            checker,
            t_ns,
            offset,
            what,
        })?;
    }
    Ok(())
}
