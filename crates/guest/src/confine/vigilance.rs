//! Whether spins have to be counted.
//!
//! To count them, BPF programs run at the beginning and the end of each contended wait. Only where
//! vCPUs are preempted can fewer of them do more. So a guest that wanted all of its vCPUs for a
//! while, and had them, stops counting until one is preempted. Nothing follows from times when some
//! of its vCPUs were idle.
//!
//! To attach the programs, and to detach them, the kernel looks at all of its functions for each
//! one: 275 ms together in virtual time, a million instructions a millisecond. So counting stops no
//! sooner than it has cost as much itself. Whatever follows, that costs at most twice as much as
//! the better of the two.

use unspin_policy::confine::Facts;

/// So long must a guest want its vCPUs and have them; twice as long each time that it lost them
/// again. Overcommit shows within some slices of the host's, which last 3 to 30 ms.
const CLEAR_NS: u64 = 200_000_000;
const CLEAR_MAX_NS: u64 = 256_000_000_000;
/// It wants all of them from this share on, in percent: all but for moments.
const WANTED_PERCENT: u64 = 75;
/// A smaller share of the wanted time off, in percent, is not overcommit: hosts have work of their
/// own.
const OFF_PERCENT: u64 = 2;
/// A guest that spins so much, in percent, is not judged: spins with interrupts disabled hide time
/// off. Half of what a trial without time off takes.
const SPIN_PERCENT: u64 = 20;
/// What counting costs a contended wait: 900 instructions (experiment vt-counting), of which a CPU
/// executes three a nanosecond.
const COUNTED_NS: u64 = 300;
/// A window that ended later counts as so long: a guest that was paused for days had one of days.
const WINDOW_MAX_NS: u64 = 1_000_000_000;

/// Decides whether spins are counted.
#[derive(Debug, Clone)]
pub(super) struct Vigilance {
    counts: bool,
    /// What detaching the programs and attaching them again takes.
    change_ns: u64,
    /// What counting has cost since they were attached.
    spent_ns: u64,
    clear_ns: u64,
    seen_ns: u64,
    /// Of the windows seen, in vCPU nanoseconds times a thousand.
    wanted: u64,
    off: u64,
    spun: u64,
}

impl Vigilance {
    /// Counting has begun, and to begin it took so much CPU time.
    pub(super) fn new(attached_ns: u64) -> Vigilance {
        Vigilance {
            counts: true,
            change_ns: 2 * attached_ns,
            spent_ns: 0,
            clear_ns: CLEAR_NS,
            seen_ns: 0,
            wanted: 0,
            off: 0,
            spun: 0,
        }
    }

    /// The same machine with other vCPUs: nothing is known of them.
    pub(super) fn forget_all(&mut self) {
        self.forget();
        self.clear_ns = CLEAR_NS;
    }

    /// What it took to attach the programs this time.
    pub(super) fn attached(&mut self, attached_ns: u64) {
        self.change_ns = 2 * attached_ns;
    }

    /// A window has passed. Returns whether spins are to be counted from now on; `busy` is whether
    /// a limit is in force or tried.
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
        self.spent_ns += u64::from(facts.paths) * COUNTED_NS;
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
            self.counts = !is_clear || self.spent_ns < self.change_ns;
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
    /// To attach takes 1.5 ms, so to stop pays after 10 000 contended waits.
    const ATTACHED_NS: u64 = 1_500_000;

    /// After how many windows of these facts, of four vCPUs, spins are not counted any more.
    fn stops_after(vigilance: &mut Vigilance, facts: Facts) -> Option<u32> {
        (1..=10_000).find(|_| !vigilance.step(&facts, 4, WINDOW_NS, false))
    }

    fn facts(on_m: u32, off_m: u32, spin_m: u32) -> Facts {
        Facts { on_m, off_m, spin_m, paths: 1_000, ..Facts::default() }
    }

    #[test]
    fn a_guest_that_has_all_of_its_vcpus_is_not_counted() {
        let mut vigilance = Vigilance::new(ATTACHED_NS);
        assert_eq!(stops_after(&mut vigilance, facts(3_990, 10, 700)), Some(20));
    }

    #[test]
    fn counting_goes_on_until_it_has_cost_as_much_as_to_stop() {
        for (paths, windows) in [(100, Some(100)), (10, Some(1_000)), (0, None)] {
            let facts = Facts { paths, ..facts(4_000, 0, 0) };
            assert_eq!(stops_after(&mut Vigilance::new(ATTACHED_NS), facts), windows, "{paths}");
        }
    }

    #[test]
    fn a_guest_that_is_preempted_or_spins_or_leaves_vcpus_idle_is_counted() {
        for (on_m, off_m, spin_m) in [(3_900, 100, 0), (4_000, 0, 800), (2_900, 0, 0)] {
            let mut vigilance = Vigilance::new(ATTACHED_NS);
            assert_eq!(stops_after(&mut vigilance, facts(on_m, off_m, spin_m)), None);
        }
    }

    /// Of a large guest that was paused.
    #[test]
    fn a_window_of_days_does_not_wrap() {
        let mut vigilance = Vigilance::new(ATTACHED_NS);
        let facts = Facts { on_m: 300_000, paths: 100_000, ..Facts::default() };
        assert!(!vigilance.step(&facts, 300, 2 * 86_400_000_000_000, false));
    }

    #[test]
    fn a_guest_under_a_limit_is_counted() {
        let mut vigilance = Vigilance::new(ATTACHED_NS);
        assert!((0..10_000).all(|_| vigilance.step(&facts(4_000, 0, 0), 4, WINDOW_NS, true)));
    }

    #[test]
    fn a_preemption_has_it_counted_again_and_for_longer_each_time() {
        let mut vigilance = Vigilance::new(ATTACHED_NS);
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
