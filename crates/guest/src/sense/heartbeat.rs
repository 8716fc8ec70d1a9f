//! Chooses how often heartbeats come, by the cost of one here.

use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::now_ns;
use super::page::Page;

/// The shortest period of heartbeats.
const SHORTEST_NS: u64 = 500_000;
/// The longest period: the kernel's own tick comes about as often, so rarer heartbeats add nothing.
const LONGEST_NS: u64 = 4_000_000;
/// The name of the missing hook if heartbeats are off, and the kernel does not reveal when its tick
/// is due.
pub(super) const MISSING: &str = "heartbeats";
/// The period, number and time of heartbeats while their cost is measured.
const TRIAL_NS: u64 = 250_000;
const TRIAL_BEATS: usize = 60;
const TRIAL_TIME: Duration = Duration::from_millis(100);
/// The time until a vCPU's heartbeats have begun, which they do at a task switch after a tick.
const TICK: Duration = Duration::from_millis(12);

/// How often heartbeats are wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Beat {
    /// The nanoseconds between two heartbeats of a vCPU that is not idle; 0 for none.
    Every(u64),
    /// As often as this share of a vCPU's time pays for; none if that is too rare to show anything.
    Within(f64),
}

/// The chosen heartbeats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The nanoseconds between two heartbeats; 0 if there are none.
    pub period_ns: u64,
    /// The nanoseconds that one heartbeat takes from the vCPU, if that was measured: the interrupt,
    /// its programs and setting the timer again.
    pub cost_ns: Option<u64>,
}

/// Chooses the period; `set` changes the period of the running heartbeats, in nanoseconds.
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

/// Occupies one vCPU for a while, and measures how long each heartbeat interrupts it. Returns the
/// median, because some heartbeats meet an off interval; `None` if no heartbeat came.
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

/// Runs `work` on a new thread that is bound to a vCPU. The caller itself is not bound: to restore
/// its vCPUs later would fix them to those that it may use at that moment. If `unspin run` limits
/// it just then, it and its commands would stay limited for good.
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
            // The heartbeat may have come just after the last count was read.
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
