//! Work conservation: no entity waits for longer than a quantum while a pCPU that it may run on is
//! free. Only a guest with a quota may have to wait longer.

use super::{Found, Rules};
use crate::virtual_time::{Event, Kind, Record};

pub(super) fn check(record: &Record, rules: &Rules) -> Result<(), Found> {
    let mut host = Host {
        waits_since_ns: vec![None; record.entities as usize],
        busy: vec![false; record.pcpus as usize],
        stolen: vec![false; record.pcpus as usize],
        free_since_ns: vec![Some(0); record.pcpus as usize],
        any_free_since_ns: Some(0),
        held_to: &rules.held_to,
        may_wait: (0..record.entities as usize)
            .map(|entity| rules.quota_ns.is_some() && rules.vm(entity) == 0)
            .collect(),
    };
    for event in record.in_time_order() {
        if let Some((entity, waited_ns)) = host.longest_wait(event.t_ns) {
            if waited_ns > rules.quantum_ns {
                return Err(Found::at(event, complaint(entity, waited_ns)));
            }
        }
        host.step(event);
    }
    match host.longest_wait(record.end_ns) {
        Some((entity, waited_ns)) if waited_ns > rules.quantum_ns => {
            Err(Found::at_end(record, complaint(entity, waited_ns)))
        }
        _ => Ok(()),
    }
}

fn complaint(entity: usize, waited_ns: u64) -> String {
    format!("entity {entity} has waited for {waited_ns} ns beside a free pCPU")
}

struct Host<'a> {
    waits_since_ns: Vec<Option<u64>>,
    busy: Vec<bool>,
    stolen: Vec<bool>,
    /// Time since which each pCPU has been free; `None` if it is not free.
    free_since_ns: Vec<Option<u64>>,
    /// Time since which at least one pCPU has been free; `None` if none is free.
    any_free_since_ns: Option<u64>,
    held_to: &'a [u8],
    /// Whether each entity may have used up a quota.
    may_wait: Vec<bool>,
}

impl Host<'_> {
    /// Returns the entity that has waited longest while a pCPU that it may run on was free, and the
    /// length of that wait in nanoseconds.
    fn longest_wait(&self, now_ns: u64) -> Option<(usize, u64)> {
        let waits = self.waits_since_ns.iter().enumerate();
        let waits = waits.filter(|(entity, _)| !self.may_wait[*entity]);
        let waits = waits.filter_map(|(entity, since_ns)| {
            let free_since_ns = match self.held_to.get(entity) {
                Some(pcpu) => self.free_since_ns.get(usize::from(*pcpu)).copied().flatten()?,
                None => self.any_free_since_ns?,
            };
            Some((entity, now_ns.saturating_sub(free_since_ns.max((*since_ns)?))))
        });
        waits.max_by_key(|(_, waited_ns)| *waited_ns)
    }

    fn step(&mut self, event: &Event) {
        match (event.kind, event.pcpu) {
            (Kind::On, Some(pcpu)) => {
                self.waits_since_ns[usize::from(event.entity)] = None;
                self.busy[usize::from(pcpu)] = true;
            }
            (Kind::Off, Some(pcpu)) => {
                self.waits_since_ns[usize::from(event.entity)] = Some(event.t_ns);
                self.busy[usize::from(pcpu)] = false;
            }
            (Kind::Idle, Some(pcpu)) => self.busy[usize::from(pcpu)] = false,
            (Kind::Idle, None) => self.waits_since_ns[usize::from(event.entity)] = None,
            (Kind::Steal(taken), Some(pcpu)) => self.stolen[usize::from(pcpu)] = taken,
            (Kind::Wake, _) => self.waits_since_ns[usize::from(event.entity)] = Some(event.t_ns),
            _ => return,
        }
        let since =
            |since_ns: Option<u64>, free: bool| free.then(|| since_ns.unwrap_or(event.t_ns));
        let states = self.busy.iter().zip(&self.stolen);
        for (since_ns, (busy, stolen)) in self.free_since_ns.iter_mut().zip(states) {
            *since_ns = since(*since_ns, !busy && !stolen);
        }
        let any = self.free_since_ns.iter().any(Option::is_some);
        self.any_free_since_ns = since(self.any_free_since_ns, any);
    }
}
