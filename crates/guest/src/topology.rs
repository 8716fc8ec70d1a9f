//! Finds out which vCPUs share a pCPU: pairs of vCPUs send a cache line to and fro, and
//! `policy/topology.h` judges the results.

mod apart;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use unspin_policy::topology::{Relation, pause, relation, together, try_time};

use crate::confine::online;
use apart::{Apart, all_at_once};

/// The number of handoffs of the line after which a try ends.
const ENOUGH: u64 = 1_000;
/// The number of times that a side checks the line between two readings of the clock.
const LOOKS: u32 = 256;
/// A vCPU whose readings of the clock are so far apart was off in between.
const GAP: Duration = Duration::from_micros(200);
/// The length of the rest between two pairs, as a multiple of the time that a pair took.
const REST: u32 = 20;
/// The delay before the first try. A try takes vCPUs from a job that begins now, and moves tasks
/// while the number of vCPUs is on trial.
const FIRST: Duration = Duration::from_secs(1);
/// The time until all pairs are tried again: a machine may be moved to another host.
const AGAIN: Duration = Duration::from_secs(300);

/// Finds the vCPUs that share a pCPU in the background: soon, and again every few minutes.
pub struct Prober {
    found: Receiver<Vec<u32>>,
    _stop: Sender<()>,
}

impl Prober {
    /// Starts with all vCPUs up to the last one that is online.
    pub fn start() -> Prober {
        Prober::of(last_online() + 1)
    }

    /// Starts with the vCPUs 0 to `vcpus` - 1.
    fn of(vcpus: u32) -> Prober {
        let (tell, found) = channel();
        let (stop, stopped) = channel();
        thread::spawn(move || {
            let clock = Clock { stopped };
            if !clock.pause(FIRST) {
                return;
            }
            while let Some(stacks) = look(&clock, vcpus) {
                if tell.send(stacks).is_err() || !clock.pause(AGAIN) {
                    return;
                }
            }
        });
        Prober { found, _stop: stop }
    }

    /// Returns the latest result since the last call: for each vCPU, the first vCPU on the same
    /// pCPU.
    pub fn news(&self) -> Option<Vec<u32>> {
        self.found.try_iter().last()
    }
}

fn last_online() -> u32 {
    online().ok().and_then(|online| online.last().copied()).unwrap_or(0)
}

/// Waits, until the [`Prober`] is dropped.
struct Clock {
    stopped: Receiver<()>,
}

impl Clock {
    /// Waits for `lasts`. Returns whether the prober is still wanted.
    fn pause(&self, lasts: Duration) -> bool {
        self.stopped.recv_timeout(lasts) == Err(RecvTimeoutError::Timeout)
    }
}

/// For each vCPU the first one of those that share its pCPU; `None` where nobody wants to know any
/// more.
fn look(clock: &Clock, vcpus: u32) -> Option<Vec<u32>> {
    let apart = Apart::find(vcpus, |some| {
        let on = all_at_once(some);
        clock.pause(try_time() * REST).then_some(on)
    })?;
    stacks(vcpus, |a, b| if apart.has(a, b) { Some(false) } else { share(clock, a, b) })
}

/// Asks about each vCPU and the first one of each stack before it; `None` where an answer is
/// missing.
fn stacks(vcpus: u32, share: impl Fn(u32, u32) -> Option<bool>) -> Option<Vec<u32>> {
    let mut firsts: Vec<u32> = Vec::new();
    for vcpu in 0..vcpus {
        let mut first = vcpu;
        for other in (0..vcpu).filter(|other| firsts[*other as usize] == *other) {
            if share(other, vcpu)? {
                first = other;
                break;
            }
        }
        firsts.push(first);
    }
    Some(firsts)
}

/// Returns whether two vCPUs share a pCPU. An offline vCPU shares none. `None` if the prober was
/// dropped.
fn share(clock: &Clock, a: u32, b: u32) -> Option<bool> {
    let (mut most, mut by_chance) = (0, Duration::ZERO);
    for tries in 1.. {
        let began = Instant::now();
        let Some(seen) = try_once([a, b]) else { return Some(false) };
        most = most.max(seen.handoffs);
        by_chance += together(seen.on);
        let (answer, pause) = match relation(most, by_chance, tries) {
            Relation::Unknown => (None, pause()),
            found => (Some(found == Relation::Stacked), began.elapsed() * REST),
        };
        if !clock.pause(pause) {
            return None;
        }
        if answer.is_some() {
            return answer;
        }
    }
    None
}

/// A variable in a separate cache line, whatever the size of a line is here.
#[repr(align(256))]
struct Line(AtomicU64);

/// The result of a try.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// The number of times that the line went from one vCPU to the other.
    handoffs: u64,
    /// The time that each vCPU was on.
    on: [Duration; 2],
}

/// Tries a pair of vCPUs. `None` if this thread cannot run on one of them.
fn try_once(vcpus: [u32; 2]) -> Option<Seen> {
    let (line, ready) = (Line(AtomicU64::new(0)), Barrier::new(2));
    let side = |own: u64, vcpu: u32| {
        let there = settle_on(vcpu);
        ready.wait();
        there.then(|| send_back(&line.0, own))
    };
    let [own, other] = thread::scope(|scope| {
        let other = scope.spawn(|| side(1, vcpus[1]));
        let own = scope.spawn(|| side(0, vcpus[0]));
        [own, other].map(|side| side.join().unwrap_or(None))
    });
    Some(Seen { on: [own?, other?], handoffs: line.0.into_inner() })
}

/// Binds this thread to a vCPU, and runs it before all others there if that is allowed. Returns
/// whether the vCPU is available.
fn settle_on(vcpu: u32) -> bool {
    let mut set = CpuSet::new();
    if set.set(vcpu as usize).is_err() || sched_setaffinity(Pid::from_raw(0), &set).is_err() {
        return false;
    }
    let first = nix::libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters are only read. Without the right to this priority, others may go
    // first.
    unsafe { nix::libc::sched_setscheduler(0, nix::libc::SCHED_FIFO, &raw const first) };
    true
}

/// Sends the line back whenever it arrives: the line belongs to this side while its count is even
/// for one side, odd for the other. Returns how long this vCPU was on. The loop has no PAUSE, which
/// a hypervisor may take as a reason to run another vCPU.
fn send_back(line: &AtomicU64, own: u64) -> Duration {
    let (mut last, mut on) = (Instant::now(), Duration::ZERO);
    let end = last + try_time();
    while last < end {
        for _ in 0..LOOKS {
            let count = line.load(Ordering::Acquire);
            if count >= ENOUGH {
                return on;
            }
            if count % 2 == own {
                line.store(count + 1, Ordering::Release);
            }
        }
        let now = Instant::now();
        on += Some(now - last).filter(|passed| *passed < GAP).unwrap_or_default();
        last = now;
    }
    on
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_share_a_pcpu_are_a_stack() {
        let pairs = |a: u32, b: u32| Some(a / 2 == b / 2);
        assert_eq!(stacks(6, pairs).unwrap(), [0, 0, 2, 2, 4, 4]);
        assert_eq!(stacks(4, |_, _| Some(true)).unwrap(), [0, 0, 0, 0]);
        assert_eq!(stacks(3, |_, _| Some(false)).unwrap(), [0, 1, 2]);
        assert_eq!(stacks(3, |a, _| (a == 0).then_some(false)), None);
    }

    #[test]
    fn two_threads_of_one_cpu_are_stacked_and_those_of_two_are_not() {
        let (_stop, stopped) = channel();
        let clock = Clock { stopped };
        assert_eq!(share(&clock, 0, 0), Some(true));
        if try_once([0, 1]).is_some() {
            assert_eq!(share(&clock, 0, 1), Some(false));
        } else {
            note!("skipped the second half: there is one CPU only");
        }
        assert_eq!(try_once([0, 1_000]), None);
    }

    #[test]
    fn who_is_not_asked_any_more_stops() {
        let prober = Prober::of(1);
        assert_eq!(prober.found.recv(), Ok(vec![0]));
        let Prober { found, _stop } = prober;
        drop(_stop);
        assert!(found.recv().is_err());
    }
}
