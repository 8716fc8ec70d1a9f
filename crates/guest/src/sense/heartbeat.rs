//! How often heartbeats come, and what one costs here.

use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::now_ns;
use super::page::Page;

/// No more often than this.
const SHORTEST_NS: u64 = 500_000;
/// The kernel's own tick comes about as often, so a rarer heartbeat adds nothing.
const LONGEST_NS: u64 = 4_000_000;
/// What is missing where there are none, and the kernel does not say when its tick is due.
pub(super) const MISSING: &str = "heartbeats";
/// While the cost is measured.
const TRIAL_NS: u64 = 250_000;
const TRIAL_BEATS: usize = 60;
const TRIAL_TIME: Duration = Duration::from_millis(100);
/// A vCPU's heartbeats begin at a switch of tasks after a tick.
const TICK: Duration = Duration::from_millis(12);

/// How often heartbeats are wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Beat {
    /// Nanoseconds between two of a vCPU that is not idle; 0: none.
    Every(u64),
    /// As often as this share of a vCPU's time pays for; none where that would be too
    /// rarely to tell anything.
    Within(f64),
}

/// The heartbeats that were chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Nanoseconds between two; 0: there are none.
    pub period_ns: u64,
    /// What one takes from the vCPU, where that was measured: the interrupt, its programs
    /// and setting the timer again.
    pub cost_ns: Option<u64>,
}

/// Chooses the period; `set` makes heartbeats come every so many nanoseconds from now on.
pub(super) fn choose(beat: Beat, page: &Page, mut set: impl FnMut(u64)) -> Heartbeat {
    let chosen = match beat {
        Beat::Every(period_ns) => Heartbeat { period_ns, cost_ns: None },
        Beat::Within(share) => {
            let cost_ns = cost_ns(page, &mut set);
            Heartbeat { period_ns: cost_ns.map_or(0, |cost| period_ns(cost, share)), cost_ns }
        }
    };
    set(chosen.period_ns);
    chosen
}

fn period_ns(cost_ns: u64, share: f64) -> u64 {
    let wanted = SHORTEST_NS.max((cost_ns as f64 / share) as u64);
    if wanted > LONGEST_NS { 0 } else { wanted }
}

/// Takes one vCPU for a while and looks how long each heartbeat keeps it from running;
/// the median, because some meet an off interval. `None` where none came.
fn cost_ns(page: &Page, set: &mut impl FnMut(u64)) -> Option<u64> {
    set(TRIAL_NS);
    let gaps = on_one_vcpu(|vcpu| {
        thread::sleep(TICK);
        interruptions(page, vcpu)
    });
    set(0);
    let mut gaps = gaps?;
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).copied()
}

/// Works on a thread of its own, which is bound to a vCPU. To bind the caller, and then to all that
/// it may use now, would keep it within a limit of `unspin run` for good, with its commands.
fn on_one_vcpu<T: Send>(work: impl FnOnce(usize) -> T + Send) -> Option<T> {
    let bound = || {
        let vcpu = sched_getcpu().ok()?;
        let mut only = CpuSet::new();
        only.set(vcpu).ok()?;
        sched_setaffinity(Pid::from_raw(0), &only).ok()?;
        Some(work(vcpu))
    };
    thread::scope(|scope| scope.spawn(bound).join().ok().flatten())
}

fn interruptions(page: &Page, vcpu: usize) -> Vec<u64> {
    let started = Instant::now();
    let (mut gaps, mut before_ns, mut last_gap) = (Vec::new(), now_ns(), 0);
    let mut beats = page.beats(vcpu);
    while gaps.len() < TRIAL_BEATS && started.elapsed() < TRIAL_TIME {
        let (beats_now, t_ns) = (page.beats(vcpu), now_ns());
        let gap = t_ns.saturating_sub(before_ns);
        if beats_now != beats {
            // It may have come just after the last count was read.
            gaps.push(gap.max(last_gap));
        }
        (beats, before_ns, last_gap) = (beats_now, t_ns, gap);
    }
    gaps
}

#[cfg(test)]
mod tests {
    use nix::sched::sched_getaffinity;
    use nix::unistd::gettid;

    use super::*;

    #[test]
    fn who_measures_is_bound_to_nothing() {
        let this = gettid();
        let before = sched_getaffinity(this).unwrap();
        let (vcpu, others, own) = on_one_vcpu(|vcpu| {
            let of = |thread| sched_getaffinity(thread).unwrap();
            (vcpu, of(this), of(Pid::from_raw(0)))
        })
        .unwrap();
        let mut only = CpuSet::new();
        only.set(vcpu).unwrap();
        assert_eq!((others, own), (before, only));
    }

    #[test]
    fn a_dear_heartbeat_comes_rarely_or_not_at_all() {
        assert_eq!(period_ns(2_000, 0.01), SHORTEST_NS);
        assert_eq!(period_ns(10_000, 0.01), 1_000_000);
        assert_eq!(period_ns(90_000, 0.01), 0);
        assert_eq!(period_ns(90_000, 0.05), 1_800_000);
    }
}
