//! An entity is on at most one pCPU, and a pCPU carries at most one entity.

use super::{Found, Rules};
use crate::virtual_time::{Kind, Record};

pub(super) fn check(record: &Record, _: &Rules) -> Result<(), Found> {
    let mut on: Vec<Option<u8>> = vec![None; record.entities as usize];
    let mut carries: Vec<Option<u16>> = vec![None; record.pcpus as usize];
    for event in record.in_time_order() {
        // The injector's events concern no entity.
        let placed = matches!(event.kind, Kind::On | Kind::Off | Kind::Idle);
        let Some(pcpu) = event.pcpu.filter(|_| placed) else { continue };
        let place = &mut on[usize::from(event.entity)];
        let carried = &mut carries[usize::from(pcpu)];
        match (event.kind, *place, *carried) {
            (Kind::On, Some(already), _) => {
                let what = format!("entity {} is on pCPUs {already} and {pcpu}", event.entity);
                return Err(Found::at(event, what));
            }
            (Kind::On, None, Some(other)) => {
                let what = format!("pCPU {pcpu} carries entities {other} and {}", event.entity);
                return Err(Found::at(event, what));
            }
            (Kind::On, None, None) => (*place, *carried) = (Some(pcpu), Some(event.entity)),
            (Kind::Off | Kind::Idle, Some(from), _) if from == pcpu => {
                (*place, *carried) = (None, None);
            }
            _ => {}
        }
    }
    Ok(())
}
