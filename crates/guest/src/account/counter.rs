//! Sums up the spins of each vCPU from records that the BPF programs write meanwhile.

use super::{Record, Spun};

/// The length in nanoseconds from which on a spin under way counts as one whose end was not seen.
const LOST_NS: u64 = 1_000_000_000;

/// Turns a vCPU's records into a sum that never decreases.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counter {
    spun_ns: u64,
    /// The nanoseconds spun according to the last record, including the spin under way.
    total_ns: u64,
    /// The beginning of a spin that counts as lost, because its end was not seen.
    given_up_ns: u64,
    /// The nanoseconds that the lost spin has counted so far.
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
        // Otherwise the fields, which are read one after the other, are from before and after the
        // end of a spin.
        if total_ns > self.total_ns || record.lost > self.lost {
            let grown_ns = total_ns.saturating_sub(self.total_ns);
            // If the lost spin has ended after all, the record's sum includes what it has already
            // counted.
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
        // A record that is read between the end of a spin and the growth of its sum.
        let torn = Record { since_ns: 0, ..spinning };
        assert_eq!(counter.advance(&torn, 1_500, false).ns, 500);
        let ended = Record { spin_ns: 620, since_ns: 0, spins: 4, ..spinning };
        assert_eq!(counter.advance(&ended, 1_700, false).ns, 620);
        // The record may be newer than `now_ns`.
        assert_eq!(Counter::default().advance(&spinning, 900, false).ns, 100);
    }

    #[test]
    fn a_spin_that_is_given_up_counts_once() {
        let stuck = Record { spin_ns: 100, since_ns: 1_000, ..Record::default() };
        let mut counter = Counter::default();
        assert_eq!(counter.advance(&stuck, 5_000, false).ns, 4_100);
        assert_eq!(counter.advance(&stuck, 5_500, true).ns, 4_100);
        assert_eq!(counter.advance(&stuck, 6_000, false).ns, 4_100);
        // The given-up spin continues, and ends after all.
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
