//! Which of many vCPUs share no pCPU: those that are on together while many have to run.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::thread;
use std::time::{Duration, Instant};

use unspin_policy::topology::try_time;

use super::{GAP, settle_on};

/// With up to this number of vCPUs, every pair is tested. With 512, that took 45 minutes.
const FEW: u32 = 16;
/// The maximum number of rounds in which many vCPUs run at once. The pairs that are then still open
/// are tested one by one.
const ROUNDS: u32 = 128;
/// For each vCPU, the time that its thread has to get there before a round begins.
const LEAD: Duration = Duration::from_micros(100);
/// Two that share a pCPU are on together only in gaps that pass unseen, each shorter than [`GAP`].
const TOGETHER: Duration = Duration::from_micros(400);

/// From when until when a vCPU was on without a gap.
type Stretch = (Instant, Instant);
/// All of these in a round; `None` where the vCPU could not be had.
pub(super) type On = Option<Vec<Stretch>>;

/// Pairs of vCPUs that share no pCPU, the lower number first.
#[derive(Default)]
pub(super) struct Apart(HashSet<(u32, u32)>);

impl Apart {
    /// Runs many vCPUs at once: first all of them, then random halves, in which those that share a
    /// pCPU have it to themselves now and then. `None` where a round gives none.
    pub(super) fn find(
        vcpus: u32,
        mut round: impl FnMut(&[u32]) -> Option<Vec<On>>,
    ) -> Option<Apart> {
        let mut apart = Apart::default();
        let rounds = if vcpus > FEW { ROUNDS } else { 0 };
        for nth in 0..rounds {
            let some: Vec<u32> = (0..vcpus).filter(|_| nth == 0 || coin()).collect();
            if !apart.add(&some, &round(&some)?) {
                break;
            }
        }
        Some(apart)
    }

    /// Adds what a round with these vCPUs, in order, shows. Returns whether that is new.
    fn add(&mut self, vcpus: &[u32], on: &[On]) -> bool {
        let before = self.0.len();
        let all: Vec<(u32, &On)> = vcpus.iter().copied().zip(on).collect();
        for (index, &(b, on_b)) in all.iter().enumerate() {
            for &(a, on_a) in &all[..index] {
                let is_apart = match (on_a, on_b) {
                    (Some(on_a), Some(on_b)) => were_together(on_a, on_b),
                    // One that is not there shares none.
                    _ => true,
                };
                if is_apart {
                    self.0.insert((a, b));
                }
            }
        }
        self.0.len() > before
    }

    pub(super) fn has(&self, a: u32, b: u32) -> bool {
        self.0.contains(&(a, b))
    }
}

fn coin() -> bool {
    RandomState::new().build_hasher().finish() % 2 == 0
}

fn were_together(a: &[Stretch], b: &[Stretch]) -> bool {
    let both = |a: &Stretch, b: &Stretch| a.1.min(b.1).saturating_duration_since(a.0.max(b.0));
    a.iter().any(|a| b.iter().any(|b| both(a, b) >= TOGETHER))
}

/// How these vCPUs were on while all of them had to run.
pub(super) fn all_at_once(vcpus: &[u32]) -> Vec<On> {
    let begin = Instant::now() + LEAD * vcpus.len() as u32;
    thread::scope(|scope| {
        let start = |vcpu: &u32| {
            let vcpu = *vcpu;
            let side = move || settle_on(vcpu).then(|| stretches(begin));
            thread::Builder::new().spawn_scoped(scope, side)
        };
        let sides: Vec<_> = vcpus.iter().map(start).collect();
        // A thread that cannot be had says nothing of its vCPU.
        let silent = || Some(Vec::new());
        let ends = sides.into_iter().map(|side| side.ok().and_then(|side| side.join().ok()));
        ends.map(|on| on.unwrap_or_else(silent)).collect()
    })
}

/// Looks at the clock from `begin` on, for as long as a try lasts.
fn stretches(begin: Instant) -> Vec<Stretch> {
    thread::sleep(begin.saturating_duration_since(Instant::now()));
    let (mut last, end) = (Instant::now(), begin + try_time());
    let mut all = vec![(last, last)];
    while last < end {
        let now = Instant::now();
        match all.last_mut() {
            Some((_, until)) if now - last < GAP => *until = now,
            _ => all.push((now, now)),
        }
        last = now;
    }
    all
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::stacks;
    use super::*;

    /// Each two have a pCPU, which they get in turn, always the same one first.
    fn in_turn(vcpus: &[u32]) -> Vec<On> {
        let (begin, half) = (Instant::now(), try_time() / 2);
        let (middle, end) = (begin + half, begin + 2 * half);
        let on = |vcpu: &u32| match (vcpus.contains(&(vcpu ^ 1)), vcpu % 2) {
            (false, _) => Some(vec![(begin, end)]),
            (true, 0) => Some(vec![(begin, middle)]),
            (true, _) => Some(vec![(middle, end)]),
        };
        vcpus.iter().map(on).collect()
    }

    #[test]
    fn of_many_vcpus_few_pairs_are_asked_about() {
        const VCPUS: u32 = 64;
        let apart = Apart::find(VCPUS, |some| Some(in_turn(some))).unwrap();
        let asked = Cell::new(0);
        let found = stacks(VCPUS, |a, b| {
            asked.set(asked.get() + u32::from(!apart.has(a, b)));
            Some(!apart.has(a, b) && a / 2 == b / 2)
        });
        let firsts: Vec<u32> = (0..VCPUS).map(|vcpu| vcpu & !1).collect();
        assert_eq!(found.unwrap(), firsts);
        assert!(asked.get() <= 4 * VCPUS, "{} pairs", asked.get());
    }

    #[test]
    fn of_few_vcpus_each_pair_is_asked_about() {
        let apart = Apart::find(FEW, |_| panic!("they are not run at once")).unwrap();
        assert!(apart.0.is_empty());
        assert!(Apart::find(FEW + 1, |_| None).is_none(), "nobody wants to know any more");
    }

    #[test]
    fn vcpus_that_were_on_together_or_are_not_there_are_apart() {
        let begin = Instant::now();
        let at = |us: u64| begin + Duration::from_micros(us);
        let on = [
            Some(vec![(at(0), at(1_000)), (at(3_000), at(4_000))]),
            Some(vec![(at(700), at(2_000))]),
            Some(vec![(at(2_000), at(3_500))]),
            Some(vec![]),
            None,
        ];
        let mut apart = Apart::default();
        assert!(apart.add(&[0, 1, 2, 3, 9], &on));
        let mut found: Vec<_> = apart.0.iter().copied().collect();
        found.sort_unstable();
        assert_eq!(found, [(0, 2), (0, 9), (1, 9), (2, 9), (3, 9)]);
        assert!(!apart.add(&[0, 1, 2, 3, 9], &on), "nothing new");
    }

    #[test]
    fn a_vcpu_that_runs_was_on() {
        let on = all_at_once(&[0, 1_000]);
        assert!(on[0].as_ref().is_some_and(|stretches| !stretches.is_empty()), "{on:?}");
        assert_eq!(on[1], None);
    }
}
