//! A session in figures: what was lost, why, and where.

use std::collections::BTreeMap;

use serde::Serialize;
use unspin_model::Session;
use unspin_model::episode::{Cause, Episode, Spin, Wait};
use unspin_model::session::FoundOff;
use unspin_stats::quantile;

use crate::episodes::{burned_ns, explain, sum};

/// A session in figures: the format of `unspin report --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Digest {
    /// Length in seconds.
    pub seconds: f64,
    /// vCPUs that were online.
    pub vcpus: u16,
    /// Each vCPU's off intervals, steal time and spinning in user space.
    pub off: Vec<VcpuOff>,
    /// Lengths of off intervals in milliseconds: median, 90th and 99th percentile,
    /// largest; absent where there was none.
    pub off_ms: Option<[f64; 4]>,
    /// vCPU-seconds of steal time, which is the hypervisor's word for off: 0 also where it
    /// reports none, absent where nobody asked.
    pub steal_s: Option<f64>,
    /// Spins that were long enough to be recorded.
    pub spins: u64,
    /// vCPU-seconds that those burned.
    pub spin_s: f64,
    /// Seconds of them that vCPUs were halted, until their turn at a PV spinlock.
    pub halted_s: f64,
    /// vCPU-seconds spent spinning in user space, as ticks found; absent where they did not
    /// look.
    pub user_spin_s: Option<f64>,
    /// Waits that slept and were long enough to be recorded.
    pub waits: u64,
    /// Seconds of those, one after the other.
    pub wait_s: f64,
    /// Why spins and waits lasted, the worst cause first.
    pub causes: Vec<CauseWaste>,
    /// Where they were entered, the worst place first.
    pub sites: Vec<SiteWaste>,
    /// Heartbeats that were added, per second and vCPU.
    pub beats_per_s: f64,
    /// Findings that were lost.
    pub lost: u64,
    /// Where the session's file is cut off; absent where it is whole.
    pub incomplete: Option<String>,
}

/// One vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct VcpuOff {
    /// The vCPU.
    pub vcpu: u16,
    /// Off intervals.
    pub intervals: u64,
    /// Seconds off.
    pub off_s: f64,
    /// Seconds of steal time, as the hypervisor reports it; absent where nobody asked.
    pub steal_s: Option<f64>,
    /// Seconds spent spinning in user space, as its ticks found; absent where they did not
    /// look.
    pub user_spin_s: Option<f64>,
}

/// What a cause wasted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CauseWaste {
    /// The cause.
    pub cause: Cause,
    /// Spins and waits that lasted for it.
    pub episodes: u64,
    /// vCPU-seconds burned for it.
    pub wasted_s: f64,
    /// Seconds that threads slept for it, or their vCPUs were halted.
    pub blocked_s: f64,
    /// How sure that is, from 0 to 1: the mean over its spins and waits.
    pub confidence: f64,
}

/// What was wasted at a place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SiteWaste {
    /// The function that wanted the lock; empty where that is not known.
    pub site: String,
    /// What it waited for.
    pub wait: Wait,
    /// Spins and waits.
    pub episodes: u64,
    /// vCPU-seconds burned.
    pub wasted_s: f64,
    /// Seconds that threads slept, or their vCPUs were halted.
    pub blocked_s: f64,
    /// The cause behind most of it.
    pub cause: Cause,
}

/// Works it out.
pub fn digest(session: &Session) -> Digest {
    let seconds = session.end_ns.saturating_sub(session.start_ns) as f64 / 1e9;
    let episodes = explain(session.spins.clone(), &session.offs);
    let (waits, spins): (Vec<&Spin>, Vec<&Spin>) =
        session.spins.iter().partition(|spin| spin.asleep);
    let wait_ns = sum(waits.iter().map(|wait| wait.end_ns - wait.begin_ns));
    let halted_ns = sum(spins.iter().map(|spin| spin.halted_ns));
    let off = by_vcpu(session);
    let vcpus = off.len() as u16;
    let vcpu_s = seconds * f64::from(vcpus);
    Digest {
        seconds,
        vcpus,
        off,
        off_ms: lengths(session),
        steal_s: all_s(&session.steal_ns),
        spins: spins.len() as u64,
        spin_s: burned_ns(&session.spins, &session.offs) as f64 / 1e9,
        halted_s: halted_ns as f64 / 1e9,
        user_spin_s: all_s(&session.user_spin_ns),
        waits: waits.len() as u64,
        wait_s: wait_ns as f64 / 1e9,
        causes: causes(&episodes),
        sites: sites(&episodes),
        beats_per_s: if vcpu_s > 0.0 { thousandths(session.beats as f64 / vcpu_s) } else { 0.0 },
        lost: session.lost,
        incomplete: session.incomplete.clone(),
    }
}

/// Seconds of all vCPUs together, where they are known.
fn all_s(by_vcpu_ns: &[u64]) -> Option<f64> {
    let sum_ns = || by_vcpu_ns.iter().map(|ns| *ns as f64).sum::<f64>();
    (!by_vcpu_ns.is_empty()).then(|| sum_ns() / 1e9)
}

/// Seconds of one vCPU, where they are known.
fn vcpu_s(by_vcpu_ns: &[u64], vcpu: u16) -> Option<f64> {
    by_vcpu_ns.get(usize::from(vcpu)).map(|ns| *ns as f64 / 1e9)
}

fn by_vcpu(session: &Session) -> Vec<VcpuOff> {
    let mut sums = vec![(0, 0); usize::from(session.vcpus)];
    for off in &session.offs {
        if let Some((intervals, off_ns)) = sums.get_mut(usize::from(off.vcpu)) {
            // Some began before the session did.
            let start_ns = off.start_ns.max(session.start_ns);
            let ns = off.end_ns.min(session.end_ns).saturating_sub(start_ns);
            *intervals += 1;
            *off_ns = ns.saturating_add(*off_ns);
        }
    }
    let of = |(vcpu, (intervals, off_ns)): (u16, (u64, u64))| VcpuOff {
        vcpu,
        intervals,
        off_s: off_ns as f64 / 1e9,
        steal_s: vcpu_s(&session.steal_ns, vcpu),
        user_spin_s: vcpu_s(&session.user_spin_ns, vcpu),
    };
    let is_online = |(vcpu, _): &(u16, _)| session.offline.binary_search(vcpu).is_err();
    (0..session.vcpus).zip(sums).filter(is_online).map(of).collect()
}

fn lengths(session: &Session) -> Option<[f64; 4]> {
    let ms = |off: &FoundOff| (off.end_ns - off.start_ns) as f64 / 1e6;
    let all: Vec<f64> = session.offs.iter().map(ms).collect();
    let at = |share| quantile(&all, share);
    Some([at(0.5)?, at(0.9)?, at(0.99)?, at(1.0)?])
}

fn causes(episodes: &[Episode]) -> Vec<CauseWaste> {
    let mut by_cause: BTreeMap<Cause, Sums> = BTreeMap::new();
    for episode in episodes {
        let sums = by_cause.entry(episode.cause).or_default();
        sums.episodes += 1;
        sums.wasted_ns = sums.wasted_ns.saturating_add(episode.burned_ns());
        sums.blocked_ns = sums.blocked_ns.saturating_add(episode.blocked_ns);
        sums.confidence += episode.confidence;
    }
    let of = |(cause, sums): (Cause, Sums)| CauseWaste {
        cause,
        episodes: sums.episodes,
        wasted_s: sums.wasted_ns as f64 / 1e9,
        blocked_s: sums.blocked_ns as f64 / 1e9,
        confidence: thousandths(sums.confidence / sums.episodes as f64),
    };
    let mut causes: Vec<CauseWaste> = by_cause.into_iter().map(of).collect();
    causes.sort_by(|a, b| {
        b.wasted_s.total_cmp(&a.wasted_s).then(b.blocked_s.total_cmp(&a.blocked_s))
    });
    causes
}

/// A cause's sums.
#[derive(Default)]
struct Sums {
    episodes: u64,
    wasted_ns: u64,
    blocked_ns: u64,
    confidence: f64,
}

/// Rounded to three decimals: a mean has no more.
fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// What lies at a place.
#[derive(Default)]
struct Place {
    episodes: u64,
    wasted_ns: u64,
    blocked_ns: u64,
    /// Nanoseconds of either kind, by cause.
    causes: BTreeMap<Cause, u64>,
}

fn sites(episodes: &[Episode]) -> Vec<SiteWaste> {
    let mut by_site: BTreeMap<(&str, Wait), Place> = BTreeMap::new();
    for episode in episodes {
        let place = by_site.entry((&episode.spin.site, episode.spin.wait)).or_default();
        place.episodes += 1;
        place.wasted_ns = place.wasted_ns.saturating_add(episode.burned_ns());
        place.blocked_ns = place.blocked_ns.saturating_add(episode.blocked_ns);
        let ns = place.causes.entry(episode.cause).or_default();
        *ns = ns.saturating_add(episode.wasted_ns);
    }
    let mut sites: Vec<SiteWaste> = by_site
        .into_iter()
        .filter_map(|((site, wait), place)| {
            let (cause, _) = place.causes.iter().max_by_key(|(_, ns)| **ns)?;
            Some(SiteWaste {
                site: site.to_owned(),
                wait,
                episodes: place.episodes,
                wasted_s: place.wasted_ns as f64 / 1e9,
                blocked_s: place.blocked_ns as f64 / 1e9,
                cause: *cause,
            })
        })
        .collect();
    sites.sort_by(|a, b| {
        b.wasted_s.total_cmp(&a.wasted_s).then(b.blocked_s.total_cmp(&a.blocked_s))
    });
    sites
}
