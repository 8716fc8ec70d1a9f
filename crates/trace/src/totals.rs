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

    /// Of a whole session.
    pub fn of(session: &Session) -> Totals {
        let mut totals = Totals::new(session.vcpus);
        let seconds = session.end_ns.saturating_sub(session.start_ns) as f64 / 1e9;
        let offs = &session.offs;
        totals.add(seconds, offs, offs, session.spins.clone(), session.lost);
        totals.offline.clone_from(&session.offline);
        totals.user_spin_ns.clone_from(&session.user_spin_ns);
        totals.steal_ns.clone_from(&session.steal_ns);
        totals
    }

    /// Adds what was found in the seconds since the last call. Spins and waits can have
    /// begun earlier: `around` are the off intervals since then, the new ones included.
    pub fn add(
        &mut self,
        seconds: f64,
        offs: &[FoundOff],
        around: &[FoundOff],
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
        for episode in explain(spins, around) {
            let key = (episode.spin.wait, episode.cause);
            let sums = if episode.spin.asleep { &mut causes.waits } else { &mut causes.spins };
            let ns = if episode.spin.asleep { episode.wasted_ns } else { episode.burned_ns() };
            sums.entry(key).or_default().add(ns);
        }
    }
}
