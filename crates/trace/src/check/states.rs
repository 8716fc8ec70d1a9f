//! An entity changes its state only as a vCPU can: it wakes from idle, gets a pCPU while it waits
//! for one, and leaves the pCPU that it is on. A modelled neighbour may also become idle while it
//! waits without a pCPU. Only an entity that is on sets marks.

use unspin_model::VcpuState;

use super::{Found, Rules};
use crate::virtual_time::{Event, Kind, Record};

pub(super) fn check(record: &Record, _: &Rules) -> Result<(), Found> {
    let mut states = vec![(VcpuState::Idle, None); record.entities as usize];
    // The file keeps the events of each entity in causal order, even if their times disagree.
    for event in &record.events {
        let Some((state, pcpu)) = states.get_mut(usize::from(event.entity)) else { continue };
        let is_model = u32::from(event.entity) >= record.vcpus;
        let gives_up = event.kind == Kind::Idle && event.pcpu.is_none();
        let legal = match gives_up {
            true => is_model && *state == VcpuState::Off,
            false => is_legal(event, *state, *pcpu),
        };
        if !legal {
            let what = format!("entity {}: `{}` while {state:?}", event.entity, event.kind);
            return Err(Found::at(event, what));
        }
        (*state, *pcpu) = match event.kind {
            Kind::On => (VcpuState::On, event.pcpu),
            Kind::Off | Kind::Wake => (VcpuState::Off, None),
            Kind::Idle => (VcpuState::Idle, None),
            _ => continue,
        };
    }
    Ok(())
}

fn is_legal(event: &Event, state: VcpuState, pcpu: Option<u8>) -> bool {
    match event.kind {
        Kind::On => state == VcpuState::Off,
        Kind::Off | Kind::Idle => state == VcpuState::On && pcpu == event.pcpu,
        Kind::Wake => state == VcpuState::Idle,
        Kind::Mark(_) => state == VcpuState::On,
        _ => true,
    }
}
