//! Chooses which vCPUs stay in use under a limit.
//!
//! The host may run several vCPUs on one pCPU, and the guest cannot see which ones. If the vCPUs
//! that a limit keeps are off for much of the time, the next limit keeps other ones. The first
//! choice is the vCPUs with the lowest numbers; the second is spread over all numbers. If other VMs
//! are the reason, both choices are off alike, and the choice that was on for clearly more time
//! stays.

use unspin_policy::confine::Facts;

/// The share of their wanted time, in percent, from which on vCPUs count as having a pCPU each.
const ENOUGH_PERCENT: u64 = 75;
/// The additional time that the other choice must have been on, in percent of the wanted time. A
/// change of choice moves all tasks, so a small gain is not worth it.
const MARGIN_PERCENT: u64 = 10;
/// The number of limits after which the other choice counts as untried: the host may have changed.
const FORGET: u32 = 8;
/// The number of windows after a change that are ignored: they still show the time before it.
const SKIP_WINDOWS: u32 = 2;
/// A window is ignored if the vCPUs in use want less than this share of it, in percent.
const QUIET_PERCENT: u64 = 50;

/// The two choices, and how much the vCPUs were on under each.
#[derive(Default)]
pub(super) struct Arrangement {
    /// The current choice, 0 or 1, and the choice before the last trial of fewer vCPUs.
    now: usize,
    was: usize,
    /// For each choice: the number of vCPUs kept, and their time on in percent of the wanted time.
    tried: [Option<(usize, u64)>; 2],
    /// The number of limits since the choice last changed.
    limits: u32,
    windows: u32,
    on_m: u64,
    wanted_m: u64,
}

impl Arrangement {
    /// Records a window in which `usage` vCPUs were in use. A single vCPU is ignored: both choices
    /// keep the same one.
    pub(super) fn add(&mut self, facts: &Facts, usage: usize) {
        let wanted_m = u64::from(facts.on_m) + u64::from(facts.off_m);
        if usage < 2 || wanted_m < usage as u64 * 10 * QUIET_PERCENT {
            return;
        }
        self.windows += 1;
        if self.windows <= SKIP_WINDOWS {
            return;
        }
        self.on_m += u64::from(facts.on_m);
        self.wanted_m += wanted_m;
        self.tried[self.now] = Some((usage, self.on_m * 100 / self.wanted_m));
    }

    /// Restarts the measurement because the number of vCPUs in use changes.
    pub(super) fn begin(&mut self) {
        (self.windows, self.on_m, self.wanted_m) = (0, 0, 0);
    }

    /// Chooses the vCPUs for a limit of `usage` vCPUs, which is about to begin.
    pub(super) fn choose(&mut self, usage: usize) {
        self.was = self.now;
        self.limits += 1;
        let known = |tried: Option<(usize, u64)>| tried.filter(|(of, _)| *of == usage);
        let Some((_, now)) = known(self.tried[self.now]) else { return };
        let other = known(self.tried[1 - self.now]).filter(|_| self.limits <= FORGET);
        let better = other.is_none_or(|(_, other)| other > now + MARGIN_PERCENT);
        if now < ENOUGH_PERCENT && better {
            self.now = 1 - self.now;
            self.limits = 0;
        }
    }

    /// Swaps the choices at the start of another part of a trial: each part uses either the choice
    /// under trial or the one before it.
    pub(super) fn switch(&mut self) {
        std::mem::swap(&mut self.now, &mut self.was);
    }

    /// Returns the `usage` vCPUs that stay in use, and the others.
    pub(super) fn split(&self, online: &[u32], usage: usize) -> (Vec<u32>, Vec<u32>) {
        let stays = |index: usize| match self.now {
            0 => index < usage,
            _ => index * usage % online.len() < usage,
        };
        let (keep, spare): (Vec<_>, Vec<_>) =
            online.iter().enumerate().partition(|(index, _)| stays(*index));
        let ids = |pairs: Vec<(usize, &u32)>| pairs.into_iter().map(|(_, id)| *id).collect();
        (ids(keep), ids(spare))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(arrangement: &mut Arrangement, on_m: u32, off_m: u32) {
        arrangement.begin();
        for _ in 0..5 {
            arrangement.add(&Facts { on_m, off_m, ..Facts::default() }, 2);
        }
    }

    fn kept(arrangement: &Arrangement) -> Vec<u32> {
        arrangement.split(&[0, 1, 2, 3], 2).0
    }

    #[test]
    fn each_number_is_kept_and_the_rest_is_spare() {
        for now in [0, 1] {
            let arrangement = Arrangement { now, ..Arrangement::default() };
            for vcpus in 1..20_u32 {
                let online: Vec<u32> = (10..10 + vcpus).collect();
                for usage in 1..=online.len() {
                    let (keep, spare) = arrangement.split(&online, usage);
                    assert_eq!(keep.len(), usage);
                    let mut all = [keep, spare].concat();
                    all.sort_unstable();
                    assert_eq!(all, online);
                }
            }
        }
        let spread = Arrangement { now: 1, ..Arrangement::default() };
        assert_eq!(spread.split(&[0, 1, 2, 3, 4, 5, 6, 7], 4).0, [0, 2, 4, 6]);
    }

    /// The host runs vCPUs 0 and 1 on one pCPU, 2 and 3 on another.
    #[test]
    fn others_are_left_where_the_first_ones_share_a_pcpu() {
        let mut arrangement = Arrangement::default();
        arrangement.choose(2);
        assert_eq!(kept(&arrangement), [0, 1]);
        windows(&mut arrangement, 1_000, 1_000);
        arrangement.choose(2);
        assert_eq!(kept(&arrangement), [0, 2]);
        for _ in 0..3 * FORGET {
            windows(&mut arrangement, 2_000, 20);
            arrangement.choose(2);
            assert_eq!(kept(&arrangement), [0, 2]);
        }
    }

    /// Other VMs preempt both choices: a choice that is not clearly better is not taken.
    #[test]
    fn a_choice_that_was_no_better_is_not_taken_again_soon() {
        let mut arrangement = Arrangement::default();
        windows(&mut arrangement, 1_000, 1_000);
        arrangement.choose(2);
        for limit in 1..=FORGET {
            assert_eq!(kept(&arrangement), [0, 2], "{limit}");
            windows(&mut arrangement, 900, 1_100);
            arrangement.choose(2);
        }
        // After so many limits the other choice is tried again: the host may have changed.
        windows(&mut arrangement, 900, 1_100);
        arrangement.choose(2);
        assert_eq!(kept(&arrangement), [0, 1]);
    }

    #[test]
    fn a_choice_that_was_clearly_better_is_taken_again() {
        let mut arrangement = Arrangement::default();
        for (on_m, next) in [(1_000, [0, 2]), (700, [0, 1]), (1_000, [0, 1])] {
            windows(&mut arrangement, on_m, 2_000 - on_m);
            arrangement.choose(2);
            assert_eq!(kept(&arrangement), next, "{on_m}");
        }
    }

    #[test]
    fn a_trial_that_fails_leaves_what_was_in_use_before() {
        let mut arrangement = Arrangement::default();
        windows(&mut arrangement, 1_000, 1_000);
        arrangement.choose(2);
        assert_eq!(kept(&arrangement), [0, 2]);
        arrangement.switch();
        assert_eq!(kept(&arrangement), [0, 1]);
        arrangement.switch();
        assert_eq!(kept(&arrangement), [0, 2]);
    }

    #[test]
    fn what_says_nothing_does_not_count() {
        let mut arrangement = Arrangement::default();
        // None of these count: windows right after a change, a guest with little to do, a single
        // vCPU.
        for _ in 0..SKIP_WINDOWS {
            arrangement.add(&Facts { on_m: 0, off_m: 2_000, ..Facts::default() }, 2);
        }
        for _ in 0..10 {
            arrangement.add(&Facts { on_m: 0, off_m: 900, ..Facts::default() }, 2);
            arrangement.add(&Facts { on_m: 0, off_m: 1_000, ..Facts::default() }, 1);
        }
        arrangement.choose(2);
        assert_eq!(kept(&arrangement), [0, 1]);
        // A measurement with another number of vCPUs does not count either.
        windows(&mut arrangement, 1_000, 1_000);
        arrangement.choose(3);
        assert_eq!(kept(&arrangement), [0, 1]);
    }
}
