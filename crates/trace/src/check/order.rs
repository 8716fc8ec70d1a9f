//! Time never goes back for an entity, and no entity changes its state after the end. Exits and
//! marks are not changes of state; the reader explains why their times may be later than that of
//! the change that follows them.

use super::{Found, Rules};
use crate::virtual_time::{Event, Kind, Record};

pub(super) fn check(record: &Record, _: &Rules) -> Result<(), Found> {
    let mut latest_ns = vec![0; record.entities as usize];
    let changes =
        |event: &&Event| matches!(event.kind, Kind::On | Kind::Off | Kind::Idle | Kind::Wake);
    for event in record.events.iter().filter(changes) {
        let latest = &mut latest_ns[usize::from(event.entity)];
        if event.t_ns < *latest {
            let what = format!("entity {}: `{}` after {latest} ns", event.entity, event.kind);
            return Err(Found::at(event, what));
        }
        if event.t_ns > record.end_ns {
            return Err(Found::at(event, format!("after the end at {} ns", record.end_ns)));
        }
        *latest = event.t_ns;
    }
    Ok(())
}
