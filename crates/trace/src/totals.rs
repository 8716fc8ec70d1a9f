//! A guest's findings since a start, as sums that only grow.

use std::collections::BTreeMap;

use unspin_model::Session;
use unspin_model::episode::{Cause, Spin, Wait};
use unspin_model::session::FoundOff;

use crate::episodes::explain;

/// Sums of a guest's findings since a start.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Totals {
    /// Seconds that the sums cover.
    pub seconds: f64,
    /// The offline vCPUs, in order; their sums have no meaning.
    pub offline: Vec<u16>,
    /// Number and length of each vCPU's off intervals.
    pub off: Vec<Sum>,
    /// Steal time of each vCPU in nanoseconds, as the hypervisor reports it; empty if it was not
    /// read.
    pub steal_ns: Vec<u64>,
    /// Idle time of each vCPU in nanoseconds; empty if it is not known.
    pub idle_ns: Vec<u64>,
    /// Number of ticks that sampled each vCPU, and the time for which they found it spinning in the
    /// kernel; empty if no tick sampled.
    pub looks: Vec<Sum>,
    /// Time in nanoseconds for which ticks found each vCPU spinning in user space; empty if no tick
    /// sampled.
    pub user_spin_ns: Vec<u64>,
    /// Causes of spins and waits; `None` if nothing watched each of them.
    pub causes: Option<Causes>,
}

/// Causes of spins and waits.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Causes {
    /// Number and length of long spins, by kind of wait and by cause.
    pub spins: BTreeMap<(Wait, Cause), Sum>,
    /// Number and length of waits that slept, by kind of wait and by cause.
    pub waits: BTreeMap<(Wait, Cause), Sum>,
    /// Number of findings that were lost.
    pub lost: u64,
}

/// A number of events and their total length.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sum {
    /// Number of events.
    pub count: u64,
    /// Total length in nanoseconds.
    pub ns: u64,
}

impl Sum {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.ns = self.ns.saturating_add(ns);
    }
}

impl Totals {
    /// Returns totals of `vcpus` vCPUs without findings.
    pub fn new(vcpus: u16) -> Totals {
        Totals { off: vec![Sum::default(); usize::from(vcpus)], ..Totals::default() }
    }

    /// Extends the totals to `vcpus` vCPUs if they cover fewer.
    pub fn cover(&mut self, vcpus: u16) {
        self.off.resize(usize::from(vcpus).max(self.off.len()), Sum::default());
    }

    /// Returns the totals of a whole session.
    pub fn of(session: &Session) -> Totals {
        let mut totals = Totals::new(session.vcpus);
        let seconds = session.end_ns.saturating_sub(session.start_ns) as f64 / 1e9;
        let offs = &session.offs;
        totals.add(seconds, offs, offs, Vec::new(), session.spins.clone(), session.lost);
        totals.offline.clone_from(&session.offline);
        totals.user_spin_ns.clone_from(&session.user_spin_ns);
        totals.steal_ns.clone_from(&session.steal_ns);
        totals
    }

    /// Adds the findings of the seconds since the last call. Spins and waits may have begun
    /// earlier. `around` has the off intervals since the earliest begin, including the new ones;
    /// `before` has the spins that ended since then and that earlier calls added.
    pub fn add(
        &mut self,
        seconds: f64,
        offs: &[FoundOff],
        around: &[FoundOff],
        before: Vec<Spin>,
        spins: Vec<Spin>,
        lost: u64,
    ) {
        self.seconds += seconds;
        for off in offs {
            if let Some(sum) = self.off.get_mut(usize::from(off.vcpu)) {
                sum.add(off.end_ns - off.start_ns);
            }
        }
        let causes = self.causes.get_or_insert_default();
        causes.lost = causes.lost.saturating_add(lost);
        let added = before.len();
        let spins = before.into_iter().chain(spins).collect();
        for episode in explain(spins, around).into_iter().skip(added) {
            let key = (episode.spin.wait, episode.cause);
            let sums = if episode.spin.asleep { &mut causes.waits } else { &mut causes.spins };
            let ns = if episode.spin.asleep { episode.wasted_ns } else { episode.burned_ns() };
            sums.entry(key).or_default().add(ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_vcpu_that_is_added_counts_from_then_on() {
        let (start_ns, end_ns) = (11 * MS, 18 * MS);
        let off = FoundOff { vcpu: 1, start_ns, end_ns, start_error_ns: 0, was_idle: false };
        let mut totals = Totals::new(1);
        for vcpus in [1, 2, 1] {
            totals.cover(vcpus);
            totals.add(0.2, &[off], &[], Vec::new(), Vec::new(), 0);
        }
        assert_eq!(totals.off, [Sum::default(), Sum { count: 2, ns: 14 * MS }]);
    }

    /// The waiter in front gets the lock before the end of a step; the waiter behind it gets the
    /// lock after that.
    #[test]
    fn who_was_in_front_may_have_been_added_before() {
        let spin = |vcpu, end_ms: u64| Spin {
            wait: Wait::Mutex,
            lock: 0xa0,
            asleep: false,
            vcpu,
            tid: 7,
            begin_ns: 10 * MS,
            end_ns: end_ms * MS,
            halted_ns: 0,
            owner: None,
            before: None,
            site: String::new(),
        };
        let (start_ns, end_ns) = (11 * MS, 18 * MS);
        let off = FoundOff { vcpu: 1, start_ns, end_ns, start_error_ns: 0, was_idle: false };
        let counted = |before: Vec<Spin>| {
            let mut totals = Totals::new(2);
            totals.add(0.2, &[], &[off], before, vec![spin(0, 20)], 0);
            let spins = totals.causes.unwrap_or_default().spins;
            spins.into_iter().map(|((_, cause), sum)| (cause, sum.count)).collect::<Vec<_>>()
        };
        assert_eq!(counted(vec![spin(1, 19)]), [(Cause::WaiterOff, 1)]);
        assert_eq!(counted(Vec::new()), [(Cause::Plain, 1)]);
    }
}
