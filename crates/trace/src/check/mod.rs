//! Invariants of a virtual-time run, one file each. The checkers read only the record and share no
//! code with the host that wrote it. So they catch a bug of the host instead of repeating it.

mod accounts;
mod no_idle_pcpu;
mod one_pcpu;
mod order;
mod quota;
mod shares;
mod states;

use crate::virtual_time::{Event, Record};

/// The settings of the host that the checkers need.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    /// Length of a round in virtual nanoseconds: how long a pCPU runs before the host reconsiders
    /// its schedule.
    pub quantum_ns: u64,
    /// Whether a weight belongs to a VM as a whole, and its vCPUs share it, instead of to each
    /// vCPU.
    pub per_vm: bool,
    /// Whether vCPUs give up their pCPU through pause-loop exits or directed yields.
    pub yields: bool,
    /// The VM of each entity, by index; VM 0 is the guest.
    pub vm_of: Vec<u16>,
    /// The pCPU that each entity is pinned to, by index; entities beyond the end may run on any
    /// pCPU.
    pub held_to: Vec<u8>,
    /// Weight of each VM, by number; VMs beyond the end have weight 1.
    pub weights: Vec<f64>,
    /// The guest's quota: how long it may run in a period on all pCPUs together, then the period,
    /// both in nanoseconds.
    pub quota_ns: Option<(u64, u64)>,
}

impl Rules {
    /// Returns the VM of an entity; VM 0 if the rules do not name one.
    fn vm(&self, entity: usize) -> u16 {
        self.vm_of.get(entity).copied().unwrap_or(0)
    }

    /// Returns the weight of a VM; 1 if the rules do not name one.
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
    /// Name of the invariant.
    pub checker: &'static str,
    /// Virtual time of the violation in nanoseconds.
    pub t_ns: u64,
    /// Byte offset in the record of the event that breaks the invariant; if the violation shows
    /// only at the end, that of the last event.
    pub offset: u64,
    /// Description of the violation.
    pub what: String,
}

type Checker = fn(&Record, &Rules) -> Result<(), Found>;

/// Finding of a checker: virtual time in nanoseconds, byte offset, description.
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

/// The checkers by name. A checker may rely on the invariants before its own.
const CHECKERS: [(&str, Checker); 7] = [
    ("order", order::check),
    ("one-pcpu", one_pcpu::check),
    ("states", states::check),
    ("accounts", accounts::check),
    ("no-idle-pcpu", no_idle_pcpu::check),
    ("shares", shares::check),
    ("quota", quota::check),
];

/// Returns the names of the invariants, in the order in which they are checked.
pub fn names() -> impl Iterator<Item = &'static str> {
    CHECKERS.iter().map(|(name, _)| *name)
}

/// Checks a record against every invariant.
///
/// # Errors
/// Returns the first [`Violation`] of the first invariant that is broken.
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
