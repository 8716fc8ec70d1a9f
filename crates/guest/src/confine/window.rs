//! The activity of all vCPUs in a window of time.

use unspin_policy::confine::{Facts, WINDOW_NS};

/// The most windows that one which ended late counts for.
const LONGEST: u64 = 8;

/// The shares of the wanted time, spun and off, from which on a change is braked. With rivals on
/// the host, unbraked lifts took 250 to 550 ms.
const JAM_SPIN_PERCENT: u32 = 20;
const JAM_OFF_PERCENT: u32 = 25;

/// Returns whether vCPUs are off and others spin, so that changes take long: a preempted vCPU may
/// hold a run queue's lock.
pub(super) fn is_jammed(facts: &Facts) -> bool {
    let wanted_m = facts.on_m + facts.off_m;
    let is_part = |m: u32, percent| m * 100 >= wanted_m * percent && wanted_m > 0;
    is_part(facts.spin_m, JAM_SPIN_PERCENT) && is_part(facts.off_m, JAM_OFF_PERCENT)
}

/// Sums over all vCPUs since the start, in nanoseconds except for counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) now_ns: u64,
    pub(super) idle_ns: u64,
    pub(super) off_ns: u64,
    pub(super) spin_ns: u64,
    /// The part of `spin_ns` in which vCPUs were off.
    pub(super) spin_off_ns: u64,
    /// Half of the time, on and off together, in spins that delayed ticks; the other half is in
    /// `off_ns`.
    pub(super) held_ns: u64,
    /// Counts of slow paths that ended, and of those whose end was not seen.
    pub(super) paths: u64,
    pub(super) lost: u64,
    /// The number of context switches.
    pub(super) switches: u64,
    /// Time on in the stopper threads, which migrate running tasks.
    pub(super) stopper_ns: u64,
    /// Counts of ticks that found a vCPU at work, and of those in user mode.
    pub(super) ticks: u64,
    pub(super) user_ticks: u64,
}

impl Sums {
    /// Returns the growth since `before`. If vCPUs have come or gone between the two, the
    /// difference includes their sums, and may be negative.
    pub(super) fn less(&self, before: &Sums) -> Sums {
        Sums {
            now_ns: self.now_ns.wrapping_sub(before.now_ns),
            idle_ns: self.idle_ns.wrapping_sub(before.idle_ns),
            off_ns: self.off_ns.wrapping_sub(before.off_ns),
            spin_ns: self.spin_ns.wrapping_sub(before.spin_ns),
            spin_off_ns: self.spin_off_ns.wrapping_sub(before.spin_off_ns),
            held_ns: self.held_ns.wrapping_sub(before.held_ns),
            paths: self.paths.wrapping_sub(before.paths),
            lost: self.lost.wrapping_sub(before.lost),
            switches: self.switches.wrapping_sub(before.switches),
            stopper_ns: self.stopper_ns.wrapping_sub(before.stopper_ns),
            ticks: self.ticks.wrapping_sub(before.ticks),
            user_ticks: self.user_ticks.wrapping_sub(before.user_ticks),
        }
    }

    /// Returns the facts since `before`, given the cost of a context switch. An off interval counts
    /// in the window in which it ends, and can be longer than that window.
    pub(super) fn since(&self, before: &Sums, vcpus: u32, switch_ns: u64) -> Facts {
        let window_ns = self.now_ns.saturating_sub(before.now_ns).max(1);
        let all_ns = window_ns * u64::from(vcpus);
        let wanted_ns = all_ns - self.idle_ns.saturating_sub(before.idle_ns).min(all_ns);
        let found_ns = self.off_ns.saturating_sub(before.off_ns);
        let off_ns = found_ns.min(wanted_ns);
        // Leave out as much here as is left out of the time off.
        let spin_off_ns = self.spin_off_ns.saturating_sub(before.spin_off_ns);
        let spin_off_ns = spin_off_ns.saturating_sub(found_ns - off_ns);
        let held_ns = self.held_ns.saturating_sub(before.held_ns).min(wanted_ns - off_ns);
        let spin_ns = self.spin_ns.saturating_sub(before.spin_ns).min(wanted_ns);
        let switches = self.switches.saturating_sub(before.switches);
        let stopper_ns = self.stopper_ns.saturating_sub(before.stopper_ns);
        let switch_ns = switches.saturating_mul(switch_ns).saturating_add(stopper_ns);
        let switch_ns = switch_ns.min(wanted_ns);
        // A large guest that was paused for a day has a window of a day: 64 bits are too few.
        let thousandths = |ns: u64| (u128::from(ns) * 1_000 / u128::from(window_ns)) as u32;
        let counted = |now: u64, before| now.saturating_sub(before).min(u32::MAX.into()) as u32;
        Facts {
            on_m: thousandths(wanted_ns - off_ns),
            off_m: thousandths(off_ns),
            spin_m: thousandths(spin_ns),
            spin_off_m: thousandths(spin_off_ns),
            held_m: thousandths(held_ns),
            paths: counted(self.paths, before.paths),
            switch_m: thousandths(switch_ns),
            ticks: counted(self.ticks, before.ticks),
            user_ticks: counted(self.user_ticks, before.user_ticks),
            windows: windows(window_ns),
        }
    }
}

/// Returns the number of windows that a window counts for, if it ended late.
fn windows(window_ns: u64) -> u32 {
    ((window_ns + WINDOW_NS / 2) / WINDOW_NS).clamp(1, LONGEST) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guest that was paused for days has one such window; the shares must not overflow.
    #[test]
    fn a_window_of_days_does_not_wrap() {
        let now = Sums { now_ns: 2 * 86_400_000_000_000, ..Sums::default() };
        let facts = now.since(&Sums::default(), 300, 0);
        assert_eq!((facts.on_m, facts.windows), (300_000, 8));
    }

    #[test]
    fn a_window_s_time_is_on_off_or_idle() {
        let before = Sums { now_ns: 50, idle_ns: 7, off_ns: 100, spin_ns: 9, ..Sums::default() };
        let now = Sums {
            now_ns: 10_050,
            idle_ns: 10_007,
            off_ns: 12_100,
            spin_ns: 3_009,
            spin_off_ns: 2_000,
            held_ns: 1_000,
            paths: 5,
            lost: 0,
            switches: 2,
            stopper_ns: 1_000,
            ticks: 7,
            user_ticks: 6,
        };
        let facts = now.since(&before, 4, 1_500);
        let counted =
            Facts { spin_m: 300, paths: 5, switch_m: 400, windows: 1, ..Facts::default() };
        let counted = Facts { ticks: 7, user_ticks: 6, ..counted };
        assert_eq!(
            facts,
            Facts { on_m: 1_800, off_m: 1_200, spin_off_m: 200, held_m: 100, ..counted }
        );
        // An off interval longer than the window: spins lose as much of it as the time off does.
        let late = Sums { off_ns: 31_100, ..now }.since(&before, 4, 1_500);
        assert_eq!(late, Facts { off_m: 3_000, spin_off_m: 100, ..counted });
        let nothing = Facts { on_m: 4_000, windows: 1, ..Facts::default() };
        assert_eq!(before.since(&before, 4, 1_500), nothing);
    }

    #[test]
    fn a_window_that_ends_late_counts_as_several() {
        let counts = |ms: u64| windows(ms * 1_000_000);
        assert_eq!([4, 10, 14, 16, 54, 900].map(counts), [1, 1, 1, 2, 5, 8]);
    }

    #[test]
    fn a_jam_is_where_vcpus_are_off_and_others_spin() {
        let facts = |on_m, off_m, spin_m| Facts { on_m, off_m, spin_m, ..Facts::default() };
        assert!(is_jammed(&facts(3_000, 1_000, 800)));
        assert!(!is_jammed(&facts(3_000, 1_000, 799)));
        assert!(!is_jammed(&facts(3_001, 999, 4_000)));
        assert!(!is_jammed(&facts(0, 0, 0)));
    }

    #[test]
    fn what_was_summed_up_stays_where_vcpus_go() {
        let first = Sums { off_ns: 100, paths: 7, ..Sums::default() };
        let before = Sums { off_ns: 900, paths: 27, ..Sums::default() };
        // The sums of the two remaining vCPUs of four.
        let now = Sums { off_ns: 300, paths: 9, ..Sums::default() };
        let first = now.less(&before.less(&first));
        assert_eq!(now.less(&first), Sums { off_ns: 800, paths: 20, ..Sums::default() });
        let later = Sums { off_ns: 350, paths: 10, ..Sums::default() };
        assert_eq!(later.less(&first), Sums { off_ns: 850, paths: 21, ..Sums::default() });
    }
}
