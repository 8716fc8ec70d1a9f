//! What a guest found out since a start, as sums that only grow.

use std::collections::BTreeMap;

use unspin_model::Session;
use unspin_model::episode::{Cause, Spin, Wait};
use unspin_model::session::FoundOff;

use crate::episodes::explain;

/// Sums.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Totals {
    /// Seconds covered.
    pub seconds: f64,
    /// vCPUs that are offline, in order: their sums have no meaning.
    pub offline: Vec<u16>,
    /// Each vCPU's off intervals.
    pub off: Vec<Sum>,
    /// Each vCPU's nanoseconds of steal time, as the hypervisor reports it; empty where nobody
    /// asked.
    pub steal_ns: Vec<u64>,
    /// Each vCPU's nanoseconds idle; empty where that is not known.
    pub idle_ns: Vec<u64>,
    /// The ticks that looked at what each vCPU does, and how long it spun in the kernel as
    /// they found; empty where none did.
    pub looks: Vec<Sum>,
    /// How many nanoseconds each spun in user space, as they found; empty where none looked.
    pub user_spin_ns: Vec<u64>,
    /// Why spins and waits lasted, where each was watched.
    pub causes: Option<Causes>,
}

/// Why spins and waits lasted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Causes {
    /// Long spins by what was waited for and why they lasted.
    pub spins: BTreeMap<(Wait, Cause), Sum>,
    /// The same of waits that slept.
    pub waits: BTreeMap<(Wait, Cause), Sum>,
    /// Findings that were lost.
    pub lost: u64,
}

/// How many, and how long together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// Nanoseconds.
    pub ns: u64,
}

impl Sum {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.ns = self.ns.saturating_add(ns);
    }
}

impl Totals {
    /// Nothing so far.
    pub fn new(vcpus: u16) -> Totals {
        Totals { off: vec![Sum::default(); usize::from(vcpus)], ..Totals::default() }
    }

    /// Covers so many vCPUs from now on, if those are more.
    pub fn cover(&mut self, vcpus: u16) {
        self.off.resize(usize::from(vcpus).max(self.off.len()), Sum::default());
    }

    /// Of a whole session.
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

    /// Adds what was found in the seconds since the last call. Spins and waits can have
    /// begun earlier: `around` are the off intervals since then, the new ones included, and
    /// `before` the spins that ended since then and were added by earlier calls.
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

    /// The waiter in front has the lock before a step ends, the one behind it has it after that.
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
