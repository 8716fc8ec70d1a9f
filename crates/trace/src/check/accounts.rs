//! on + off + idle = time for each entity; carried + stolen <= time for each pCPU, never
//! both at once; all entities together are on as long as all pCPUs together carry one; and
//! the recorded exits are as many as the host counted.

use unspin_model::VcpuState;

use super::{Found, Rules};
use crate::virtual_time::{Event, Kind, Record, reason_name};

pub(super) fn check(record: &Record, _: &Rules) -> Result<(), Found> {
    let mut entities = vec![Entity::default(); record.entities as usize];
    let mut pcpus = vec![Pcpu::default(); record.pcpus as usize];
    for event in record.in_time_order() {
        if let Some(entity) = entities.get_mut(usize::from(event.entity)) {
            entity.step(event);
        }
        if let Some(pcpu) = event.pcpu {
            pcpus[usize::from(pcpu)].step(event)?;
        }
    }
    let mut on_ns = 0;
    for (number, entity) in entities.iter_mut().enumerate() {
        entity.pass(record.end_ns);
        on_ns += entity.spent_ns[VcpuState::On as usize];
        let sum_ns: u64 = entity.spent_ns.iter().sum();
        if sum_ns != record.end_ns {
            let what = format!("entity {number}: on + off + idle = {sum_ns} ns");
            return Err(Found::at_end(record, what));
        }
    }
    let carried_ns: u64 = pcpus.iter().map(|pcpu| pcpu.carried_until(record.end_ns)).sum();
    let charged_ns: u64 = record.exits.values().map(|exits| exits.price_ns).sum();
    if carried_ns != on_ns {
        let what = format!("entities were on for {on_ns} ns, pCPUs carried for {carried_ns} ns");
        return Err(Found::at_end(record, what));
    }
    for (reason, exits) in &record.exits {
        if record.counted.get(reason).is_some_and(|count| *count != exits.count) {
            let what = format!(
                "{} exits `{}` are recorded, the host counted {}",
                exits.count,
                reason_name(*reason),
                record.counted[reason]
            );
            return Err(Found::at_end(record, what));
        }
    }
    if charged_ns > on_ns {
        let what = format!("exits cost {charged_ns} ns of the {on_ns} ns on a pCPU");
        return Err(Found::at_end(record, what));
    }
    Ok(())
}

/// Nanoseconds that an entity spent in each state.
#[derive(Clone)]
struct Entity {
    state: VcpuState,
    since_ns: u64,
    spent_ns: [u64; 3],
}

impl Default for Entity {
    fn default() -> Self {
        Entity { state: VcpuState::Idle, since_ns: 0, spent_ns: [0; 3] }
    }
}

impl Entity {
    fn pass(&mut self, t_ns: u64) {
        self.spent_ns[self.state as usize] += t_ns.saturating_sub(self.since_ns);
        self.since_ns = t_ns;
    }

    fn step(&mut self, event: &Event) {
        let state = match event.kind {
            Kind::On => VcpuState::On,
            Kind::Off | Kind::Wake => VcpuState::Off,
            Kind::Idle => VcpuState::Idle,
            _ => return,
        };
        self.pass(event.t_ns);
        self.state = state;
    }
}

/// A pCPU, as its own events tell.
#[derive(Clone, Default)]
struct Pcpu {
    carries_since_ns: Option<u64>,
    stolen: bool,
    carried_ns: u64,
}

impl Pcpu {
    fn step(&mut self, event: &Event) -> Result<(), Found> {
        match event.kind {
            Kind::On => self.carries_since_ns = Some(event.t_ns),
            Kind::Off | Kind::Idle => {
                let since_ns = self.carries_since_ns.take().unwrap_or(event.t_ns);
                self.carried_ns += event.t_ns.saturating_sub(since_ns);
            }
            Kind::Steal(taken) => self.stolen = taken,
            _ => return Ok(()),
        }
        if self.stolen && self.carries_since_ns.is_some() {
            return Err(Found::at(event, "a pCPU carries an entity while it is taken away"));
        }
        Ok(())
    }

    fn carried_until(&self, end_ns: u64) -> u64 {
        self.carried_ns + self.carries_since_ns.map_or(0, |since_ns| end_ns - since_ns)
    }
}
