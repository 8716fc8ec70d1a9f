//! A session in figures: how much time was lost, why, and where.

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
    /// Length of the session in seconds.
    pub seconds: f64,
    /// Number of vCPUs that were online.
    pub vcpus: u16,
    /// Each vCPU's off intervals, steal time and spinning in user space.
    pub off: Vec<VcpuOff>,
    /// Lengths of off intervals in milliseconds: median, 90th and 99th percentile, largest; absent
    /// if there were none.
    pub off_ms: Option<[f64; 4]>,
    /// vCPU-seconds of steal time, the hypervisor's word for off. The value is 0 also if the
    /// hypervisor reports none, and absent if it was not read.
    pub steal_s: Option<f64>,
    /// Number of spins that were long enough to be recorded.
    pub spins: u64,
    /// vCPU-seconds that these spins burned.
    pub spin_s: f64,
    /// Seconds for which vCPUs were halted in these spins, until their turn at a PV spinlock.
    pub halted_s: f64,
    /// vCPU-seconds spent spinning in user space, as ticks found; absent if ticks did not sample.
    pub user_spin_s: Option<f64>,
    /// Number of waits that slept and were long enough to be recorded.
    pub waits: u64,
    /// Length of these waits in seconds, all added up.
    pub wait_s: f64,
    /// Causes of spins and waits, the worst first.
    pub causes: Vec<CauseWaste>,
    /// Places where spins and waits were entered, the worst first.
    pub sites: Vec<SiteWaste>,
    /// Heartbeats added per second and vCPU.
    pub beats_per_s: f64,
    /// Number of findings that were lost.
    pub lost: u64,
    /// Where the session's file is cut off; absent if it is complete.
    pub incomplete: Option<String>,
}

/// Off time of one vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct VcpuOff {
    /// Index of the vCPU.
    pub vcpu: u16,
    /// Number of off intervals.
    pub intervals: u64,
    /// Off time in seconds.
    pub off_s: f64,
    /// Steal time in seconds, as the hypervisor reports it; absent if it was not read.
    pub steal_s: Option<f64>,
    /// Seconds spent spinning in user space, as the vCPU's ticks found; absent if ticks did not
    /// sample.
    pub user_spin_s: Option<f64>,
}

/// Time that one cause wasted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CauseWaste {
    /// The cause.
    pub cause: Cause,
    /// Number of spins and waits with this cause.
    pub episodes: u64,
    /// vCPU-seconds burned.
    pub wasted_s: f64,
    /// Seconds for which threads slept, or their vCPUs were halted.
    pub blocked_s: f64,
    /// Confidence in the cause, from 0 to 1: the mean over its spins and waits.
    pub confidence: f64,
}

/// Time wasted at one place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SiteWaste {
    /// The function that requested the lock; empty if it is not known.
    pub site: String,
    /// Kind of wait.
    pub wait: Wait,
    /// Number of spins and waits.
    pub episodes: u64,
    /// vCPU-seconds burned.
    pub wasted_s: f64,
    /// Seconds for which threads slept, or their vCPUs were halted.
    pub blocked_s: f64,
    /// The cause of most of the wasted time.
    pub cause: Cause,
}

/// Returns the digest of a session.
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

/// Returns the seconds of all vCPUs together, if they are known.
fn all_s(by_vcpu_ns: &[u64]) -> Option<f64> {
    let sum_ns = || by_vcpu_ns.iter().map(|ns| *ns as f64).sum::<f64>();
    (!by_vcpu_ns.is_empty()).then(|| sum_ns() / 1e9)
}

/// Returns the seconds of one vCPU, if they are known.
fn vcpu_s(by_vcpu_ns: &[u64], vcpu: u16) -> Option<f64> {
    by_vcpu_ns.get(usize::from(vcpu)).map(|ns| *ns as f64 / 1e9)
}

fn by_vcpu(session: &Session) -> Vec<VcpuOff> {
    let mut sums = vec![(0, 0); usize::from(session.vcpus)];
    for off in &session.offs {
        if let Some((intervals, off_ns)) = sums.get_mut(usize::from(off.vcpu)) {
            // An off interval may have begun before the session did.
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

/// Sums of one cause.
#[derive(Default)]
struct Sums {
    episodes: u64,
    wasted_ns: u64,
    blocked_ns: u64,
    confidence: f64,
}

/// Rounds to three decimals, the precision of a mean.
fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Sums of one place.
#[derive(Default)]
struct Place {
    episodes: u64,
    wasted_ns: u64,
    blocked_ns: u64,
    /// Nanoseconds burned or blocked, by cause.
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
