//! The times and exits of a record add up:
//!
//! - A pCPU never carries an entity while the injector has taken the pCPU away.
//! - All entities together are on for as long as all pCPUs together carry an entity.
//! - Exits cost no more than that time.
//! - If the record has both exits and counts, they agree for each reason.
//!
//! The checker does not add up the on, off and idle time of each entity: wherever time never goes
//! back, their sum is the whole run.

use super::{Found, Rules};
use crate::virtual_time::{Event, Kind, Record, reason_name};

pub(super) fn check(record: &Record, _: &Rules) -> Result<(), Found> {
    let mut entities = vec![Busy::default(); record.entities as usize];
    let mut pcpus = vec![Pcpu::default(); record.pcpus as usize];
    for event in record.in_time_order() {
        if let Some(entity) = entities.get_mut(usize::from(event.entity)) {
            entity.step(event);
        }
        if let Some(pcpu) = event.pcpu {
            pcpus[usize::from(pcpu)].step(event)?;
        }
    }
    let on_ns: u64 = entities.iter().map(|entity| entity.until(record.end_ns)).sum();
    let carried_ns: u64 = pcpus.iter().map(|pcpu| pcpu.carries.until(record.end_ns)).sum();
    let charged_ns: u64 = record.exits.values().map(|exits| exits.price_ns).sum();
    if carried_ns != on_ns {
        let what = format!("entities were on for {on_ns} ns, pCPUs carried for {carried_ns} ns");
        return Err(Found::at_end(record, what));
    }
    exits_are_as_counted(record)?;
    if charged_ns > on_ns {
        let what = format!("exits cost {charged_ns} ns of the {on_ns} ns on a pCPU");
        return Err(Found::at_end(record, what));
    }
    Ok(())
}

/// Compares the recorded exits of each reason with the host's counts. A host may record no exits,
/// or leave no counts, but then for all reasons.
fn exits_are_as_counted(record: &Record) -> Result<(), Found> {
    if record.exits.is_empty() || record.counted.is_empty() {
        return Ok(());
    }
    for reason in record.exits.keys().chain(record.counted.keys()) {
        let recorded = record.exits.get(reason).map_or(0, |exits| exits.count);
        let counted = record.counted.get(reason).copied().unwrap_or(0);
        if recorded != counted {
            let name = reason_name(*reason);
            let what =
                format!("{recorded} exits `{name}` are recorded, the host counted {counted}");
            return Err(Found::at_end(record, what));
        }
    }
    Ok(())
}

/// Time for which an entity is on a pCPU, or a pCPU carries an entity.
#[derive(Clone, Default)]
struct Busy {
    since_ns: Option<u64>,
    before_ns: u64,
}

impl Busy {
    fn step(&mut self, event: &Event) {
        match event.kind {
            Kind::On => self.since_ns = Some(event.t_ns),
            Kind::Off | Kind::Idle => {
                let since_ns = self.since_ns.take().unwrap_or(event.t_ns);
                self.before_ns += event.t_ns.saturating_sub(since_ns);
            }
            _ => {}
        }
    }

    fn until(&self, end_ns: u64) -> u64 {
        self.before_ns + self.since_ns.map_or(0, |since_ns| end_ns - since_ns)
    }
}

/// State of a pCPU, according to its own events.
#[derive(Clone, Default)]
struct Pcpu {
    carries: Busy,
    stolen: bool,
}

impl Pcpu {
    fn step(&mut self, event: &Event) -> Result<(), Found> {
        self.carries.step(event);
        if let Kind::Steal(taken) = event.kind {
            self.stolen = taken;
        }
        if self.stolen && self.carries.since_ns.is_some() {
            return Err(Found::at(event, "a pCPU carries an entity while it is taken away"));
        }
        Ok(())
    }
}
