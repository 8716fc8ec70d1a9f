//! Sums of what each vCPU has spun, made of records that its programs write meanwhile.

use super::{Record, Spun};

/// A spin under way for longer is one whose end was not seen.
const LOST_NS: u64 = 1_000_000_000;

/// Makes of a vCPU's records a sum that never decreases.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counter {
    spun_ns: u64,
    /// What the last record came to, the spin under way included.
    total_ns: u64,
    /// When a spin began whose end is not waited for any more.
    given_up_ns: u64,
    /// What that one has counted so far.
    ahead_ns: u64,
    lost: u64,
}

impl Counter {
    pub(super) fn advance(&mut self, record: &Record, now_ns: u64, is_idle: bool) -> Spun {
        let lasts_ns = now_ns.saturating_sub(record.since_ns);
        let spins = record.since_ns != 0 && record.since_ns != self.given_up_ns;
        let lost = spins && (is_idle || lasts_ns >= LOST_NS);
        if lost {
            self.given_up_ns = record.since_ns;
            self.ahead_ns = self.total_ns.saturating_sub(record.spin_ns);
            self.total_ns = record.spin_ns;
        }
        let total_ns = record.spin_ns + if spins && !lost { lasts_ns } else { 0 };
        // Otherwise the fields, which are read one after the other, are from both sides of a
        // spin's end.
        if total_ns > self.total_ns || record.lost > self.lost {
            let grown_ns = total_ns.saturating_sub(self.total_ns);
            // If it ended after all, its sum holds what has counted already.
            let ahead_ns = std::mem::take(&mut self.ahead_ns);
            let ended = record.lost == self.lost && grown_ns >= ahead_ns;
            self.spun_ns += grown_ns - if ended { ahead_ns } else { 0 };
            self.total_ns = total_ns;
        }
        self.lost = record.lost;
        Spun {
            ns: self.spun_ns,
            off_ns: record.spin_off_ns,
            held_ns: record.held_ns,
            count: record.spins,
            lost: record.lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spin_under_way_counts_and_nothing_is_taken_back() {
        let spinning = Record { spin_ns: 100, since_ns: 1_000, spins: 3, ..Record::default() };
        let mut counter = Counter::default();
        let during = counter.advance(&spinning, 1_400, false);
        assert_eq!(during, Spun { ns: 500, count: 3, ..Spun::default() });
        // Read between the end of a spin and the sum's growth.
        let torn = Record { since_ns: 0, ..spinning };
        assert_eq!(counter.advance(&torn, 1_500, false).ns, 500);
        let ended = Record { spin_ns: 620, since_ns: 0, spins: 4, ..spinning };
        assert_eq!(counter.advance(&ended, 1_700, false).ns, 620);
        // Of two clocks' readings.
        assert_eq!(Counter::default().advance(&spinning, 900, false).ns, 100);
    }

    #[test]
    fn a_spin_that_is_given_up_counts_once() {
        let stuck = Record { spin_ns: 100, since_ns: 1_000, ..Record::default() };
        let mut counter = Counter::default();
        assert_eq!(counter.advance(&stuck, 5_000, false).ns, 4_100);
        assert_eq!(counter.advance(&stuck, 5_500, true).ns, 4_100);
        assert_eq!(counter.advance(&stuck, 6_000, false).ns, 4_100);
        // It lasted longer than it was waited for, and ends after all.
        let ended = Record { spin_ns: 10_100, since_ns: 0, ..stuck };
        assert_eq!(counter.advance(&ended, 11_500, false).ns, 10_100);
    }

    #[test]
    fn a_spin_whose_end_was_not_seen_hides_no_later_one() {
        let spinning = Record { spin_ns: 100, since_ns: 1_000, ..Record::default() };
        let long = [
            (Record { since_ns: 0, lost: 1, ..spinning }, false),
            (Record { since_ns: 5_000, lost: 1, ..spinning }, false),
            (spinning, true),
        ];
        for (then, is_idle) in long {
            let mut counter = Counter::default();
            assert_eq!(counter.advance(&spinning, 5_000, false).ns, 4_100);
            assert_eq!(counter.advance(&then, 5_000, is_idle).ns, 4_100);
            let next = Record { spin_ns: 150, since_ns: 0, ..then };
            assert_eq!(counter.advance(&next, 6_000, false).ns, 4_150);
        }
        let mut counter = Counter::default();
        counter.advance(&spinning, 5_000, false);
        assert_eq!(counter.advance(&spinning, 2 * LOST_NS, false).ns, 4_100);
        let next = Record { spin_ns: 150, since_ns: 0, ..spinning };
        assert_eq!(counter.advance(&next, 2 * LOST_NS + 1, false).ns, 4_150);
    }
}
