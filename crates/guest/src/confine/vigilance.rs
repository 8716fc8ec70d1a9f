//! Decides whether spins have to be counted.
//!
//! To count spins, BPF programs run at the beginning and the end of each contended wait. But fewer
//! vCPUs can do more work only if the host preempts vCPUs. So a guest that wanted all of its vCPUs
//! for a while, and had them, stops counting until one is preempted. Times in which some vCPUs were
//! idle do not count.
//!
//! To attach or detach a program, the kernel scans all of its functions. In virtual time, at a
//! million instructions a millisecond, attaching takes 37 ms with two programs for all functions,
//! and 275 ms with two for each. So counting stops only once it has cost half as much as to stop
//! and to resume. Whatever follows, that costs at most three times as much as the better choice.

use unspin_policy::confine::Facts;

/// How long a guest must want its vCPUs and have them, in nanoseconds. The time doubles each time
/// that the guest loses a vCPU again. Overcommit shows within a few slices of the host's, which
/// last 3 to 30 ms.
const CLEAR_NS: u64 = 200_000_000;
const CLEAR_MAX_NS: u64 = 256_000_000_000;
/// The share of all vCPU time, in percent, from which on a guest counts as wanting all vCPUs.
const WANTED_PERCENT: u64 = 75;
/// A smaller share of the wanted time off, in percent, does not count as overcommit: hosts have
/// work of their own.
const OFF_PERCENT: u64 = 2;
/// A guest that spins for this share of the wanted time, in percent, keeps counting: spins with
/// interrupts disabled hide time off. It is half of what a trial without time off requires.
const SPIN_PERCENT: u64 = 20;
/// The longest time that a window counts, in nanoseconds: a guest that was paused for days has a
/// window of days.
const WINDOW_MAX_NS: u64 = 1_000_000_000;

/// Decides whether spins are counted.
#[derive(Debug, Clone)]
pub(super) struct Vigilance {
    counts: bool,
    /// The cost of counting per contended wait.
    counted_ns: u64,
    /// The time to attach the programs; to detach them takes as long.
    attached_ns: u64,
    /// The cost of counting since the programs were attached.
    spent_ns: u64,
    clear_ns: u64,
    seen_ns: u64,
    /// Sums over the windows seen, in vCPU nanoseconds.
    wanted: u64,
    off: u64,
    spun: u64,
}

impl Vigilance {
    /// Starts with counting on; `attached_ns` is the CPU time that attaching took, and `counted_ns`
    /// that by which counting lengthens a wait.
    pub(super) fn new(attached_ns: u64, counted_ns: u64) -> Vigilance {
        Vigilance {
            counts: true,
            counted_ns,
            attached_ns,
            spent_ns: 0,
            clear_ns: CLEAR_NS,
            seen_ns: 0,
            wanted: 0,
            off: 0,
            spun: 0,
        }
    }

    /// Forgets everything about the vCPUs, because others have replaced them.
    pub(super) fn forget_all(&mut self) {
        self.forget();
        self.clear_ns = CLEAR_NS;
    }

    /// Updates the CPU time that attaching the programs took.
    pub(super) fn attached(&mut self, attached_ns: u64) {
        self.attached_ns = attached_ns;
    }

    /// Evaluates a window. Returns whether spins are to be counted from now on; `busy` says whether
    /// a limit is in force or on trial.
    pub(super) fn step(&mut self, facts: &Facts, vcpus: usize, window_ns: u64, busy: bool) -> bool {
        let wanted_m = u64::from(facts.on_m) + u64::from(facts.off_m);
        let off_m = u64::from(facts.off_m);
        if !self.counts {
            if off_m * 100 >= wanted_m * OFF_PERCENT && off_m > 0 {
                self.counts = true;
                self.spent_ns = 0;
                self.clear_ns = (2 * self.clear_ns).min(CLEAR_MAX_NS);
                self.forget();
            }
            return self.counts;
        }
        self.spent_ns += u64::from(facts.paths) * self.counted_ns;
        if busy {
            self.forget();
        } else if wanted_m * 100 >= vcpus as u64 * 1_000 * WANTED_PERCENT {
            let window_ns = window_ns.min(WINDOW_MAX_NS);
            self.seen_ns += window_ns;
            self.wanted += wanted_m * window_ns / 1_000;
            self.off += off_m * window_ns / 1_000;
            self.spun += u64::from(facts.spin_m) * window_ns / 1_000;
        }
        if self.seen_ns >= self.clear_ns {
            let is_clear = self.off * 100 < self.wanted * OFF_PERCENT
                && self.spun * 100 < self.wanted * SPIN_PERCENT;
            self.counts = !is_clear || self.spent_ns < self.attached_ns;
            self.forget();
        }
        self.counts
    }

    fn forget(&mut self) {
        (self.seen_ns, self.wanted, self.off, self.spun) = (0, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_NS: u64 = 10_000_000;
    /// Stopping pays after 10 000 contended waits.
    const ATTACHED_NS: u64 = 3_000_000;
    const COUNTED_NS: u64 = 300;

    fn new() -> Vigilance {
        Vigilance::new(ATTACHED_NS, COUNTED_NS)
    }

    /// Returns the number of windows with these facts, of four vCPUs, after which counting stops.
    fn stops_after(vigilance: &mut Vigilance, facts: Facts) -> Option<u32> {
        (1..=10_000).find(|_| !vigilance.step(&facts, 4, WINDOW_NS, false))
    }

    fn facts(on_m: u32, off_m: u32, spin_m: u32) -> Facts {
        Facts { on_m, off_m, spin_m, paths: 1_000, ..Facts::default() }
    }

    #[test]
    fn a_guest_that_has_all_of_its_vcpus_is_not_counted() {
        let mut vigilance = new();
        assert_eq!(stops_after(&mut vigilance, facts(3_990, 10, 700)), Some(20));
    }

    #[test]
    fn counting_goes_on_until_it_has_cost_as_much_as_to_stop() {
        for (paths, windows) in [(100, Some(100)), (10, Some(1_000)), (0, None)] {
            let facts = Facts { paths, ..facts(4_000, 0, 0) };
            assert_eq!(stops_after(&mut new(), facts), windows, "{paths}");
        }
    }

    #[test]
    fn a_guest_that_is_preempted_or_spins_or_leaves_vcpus_idle_is_counted() {
        for (on_m, off_m, spin_m) in [(3_900, 100, 0), (4_000, 0, 800), (2_900, 0, 0)] {
            let mut vigilance = new();
            assert_eq!(stops_after(&mut vigilance, facts(on_m, off_m, spin_m)), None);
        }
    }

    /// A large guest that was paused for days has one such window; the sums must not overflow.
    #[test]
    fn a_window_of_days_does_not_wrap() {
        let mut vigilance = new();
        let facts = Facts { on_m: 300_000, paths: 100_000, ..Facts::default() };
        assert!(!vigilance.step(&facts, 300, 2 * 86_400_000_000_000, false));
    }

    #[test]
    fn a_guest_under_a_limit_is_counted() {
        let mut vigilance = new();
        assert!((0..10_000).all(|_| vigilance.step(&facts(4_000, 0, 0), 4, WINDOW_NS, true)));
    }

    #[test]
    fn a_preemption_has_it_counted_again_and_for_longer_each_time() {
        let mut vigilance = new();
        let preempted = Facts { on_m: 300, off_m: 10, ..Facts::default() };
        for windows in [20, 40, 80, 160, 320, 640] {
            assert_eq!(stops_after(&mut vigilance, facts(4_000, 0, 0)), Some(windows));
            assert!(!vigilance.step(&Facts::default(), 4, WINDOW_NS, false), "idle");
            assert!(vigilance.step(&preempted, 4, WINDOW_NS, false));
        }
        vigilance.clear_ns = CLEAR_MAX_NS;
        vigilance.counts = false;
        assert!(vigilance.step(&preempted, 4, WINDOW_NS, false));
        assert_eq!(vigilance.clear_ns, CLEAR_MAX_NS);
    }
}
