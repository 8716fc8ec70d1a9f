//! Bandwidth: the guest runs no longer on all pCPUs together than its quota allows.
//!
//! Linux hands out the quota to pCPUs in slices. A vCPU may overrun its slice until the next tick,
//! and the guest pays for the excess later. So the check covers whole seconds instead of periods,
//! and lets each pCPU be ahead by a slice and a tick.

use super::{Found, Rules};
use crate::virtual_time::{Kind, Record};

const SPAN_NS: u64 = 1_000_000_000;
/// Lead allowed to each pCPU: a slice of 5 ms and a tick of 4 ms, rounded up.
const AHEAD_NS: u64 = 10_000_000;

pub(super) fn check(record: &Record, rules: &Rules) -> Result<(), Found> {
    let Some((quota_ns, period_ns)) = rules.quota_ns.filter(|(_, period_ns)| *period_ns > 0) else {
        return Ok(());
    };
    let periods = SPAN_NS.div_ceil(period_ns);
    let span_ns = periods * period_ns;
    let most_ns = periods * quota_ns + u64::from(record.pcpus) * AHEAD_NS;
    let mut guest = Guest { on_since_ns: vec![None; record.entities as usize], on_ns: 0 };
    let mut end_ns = span_ns;
    for event in record.in_time_order() {
        while event.t_ns >= end_ns {
            let on_ns = guest.close(end_ns);
            if on_ns > most_ns {
                let what = format!(
                    "the guest was on for {on_ns} ns of {span_ns} ns, its quota is {} ns",
                    periods * quota_ns
                );
                return Err(Found(end_ns, event.offset, what));
            }
            end_ns += span_ns;
        }
        if rules.vm(usize::from(event.entity)) == 0 {
            guest.step(event.kind, usize::from(event.entity), event.t_ns);
        }
    }
    Ok(())
}

/// The guest's vCPUs, and the time for which they were on in the current span.
struct Guest {
    on_since_ns: Vec<Option<u64>>,
    on_ns: u64,
}

impl Guest {
    /// Ends the span now, and returns the nanoseconds for which the vCPUs were on in it.
    fn close(&mut self, now_ns: u64) -> u64 {
        for since_ns in self.on_since_ns.iter_mut().flatten() {
            self.on_ns += now_ns.saturating_sub(*since_ns);
            *since_ns = now_ns;
        }
        std::mem::take(&mut self.on_ns)
    }

    fn step(&mut self, kind: Kind, entity: usize, now_ns: u64) {
        match kind {
            Kind::On => self.on_since_ns[entity] = Some(now_ns),
            Kind::Off | Kind::Idle => {
                if let Some(since_ns) = self.on_since_ns[entity].take() {
                    self.on_ns += now_ns.saturating_sub(since_ns);
                }
            }
            _ => {}
        }
    }
}
