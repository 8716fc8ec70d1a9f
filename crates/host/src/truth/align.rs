//! Aligns the guest's clock with the host's by asking the guest the time. The guest answered after
//! the question and before the host received the answer, which bounds the offset on both sides
//! (Cristian 1989). Of many answers, the one with the quickest question and the one with the
//! quickest reply give the closest bounds (Marzullo 1984).
//!
//! The host asks on a page of shared memory, or by messages if there is none. With a message, each
//! side reads its time stamp counter together with its clock. If KVM publishes by how much it
//! shifts the guest's counter, the counters give a closer reading, which the messages confirm.

use unspin_wire::Failure;
use unspin_wire::clock::Moment;

use crate::vm::{Vm, if_answered};

/// Number of questions by message.
const PINGS: usize = 8;

/// A reading: guest clock minus host clock at a host time, with an error bound.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    host_ns: u64,
    offset_ns: i128,
    error_ns: u64,
}

/// The conversion from host to guest time over a run.
#[derive(Debug, Clone, Copy)]
pub struct Alignment {
    from: Reading,
    to: Reading,
    /// Bound on the conversion's error, in nanoseconds.
    pub error_ns: u64,
}

/// How a host asks its guests the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskBy {
    /// On the shared page, or by messages if there is none.
    Page,
    /// By messages only. An L1 that QEMU emulates sometimes loses an L2's interrupts, and more
    /// often after the L2 has spun. Some L2s that were asked on the page never woke up again.
    Messages,
}

/// Compares the clocks by several questions. Returns `None` if the guest does not answer. `shift`
/// is the guest's time stamp counter minus the host's, if it is known.
///
/// # Errors
/// Returns the errors of [`if_answered`].
pub fn align(vm: &mut Vm, shift: Option<i64>, ask_by: AskBy) -> Result<Option<Reading>, Failure> {
    let answers = match ask_by {
        AskBy::Page => if_answered(vm.share_clock())?,
        AskBy::Messages => None,
    };
    if let Some(reading) = answers.and_then(|answers| Reading::of(&answers)) {
        return Ok(Some(reading));
    }
    let pings = (0..PINGS).map(|_| if_answered(vm.ping()));
    let pings = pings.collect::<Result<Option<Vec<_>>, Failure>>()?;
    Ok(pings.and_then(|pings| best(&pings, shift)))
}

/// Returns the closest reading from answers to messages.
fn best(pings: &[[Moment; 3]], shift: Option<i64>) -> Option<Reading> {
    let asked =
        pings.iter().map(|[before, guest, after]| (before.mono_ns, guest.mono_ns, after.mono_ns));
    let asked = Reading::of(&asked.collect::<Vec<_>>())?;
    let counted = pings.iter().filter_map(|ping| Reading::counted(ping, shift?));
    let counted = counted.min_by_key(|reading| reading.error_ns);
    Some(counted.filter(|reading| reading.agrees(&asked)).unwrap_or(asked))
}

impl Reading {
    /// Computes a reading from the times of question, answer and receipt. If the clocks drift so
    /// fast that no offset fits all answers, the error is that misfit.
    fn of(pings: &[(u64, u64, u64)]) -> Option<Reading> {
        let offset = |guest: u64, host: u64| i128::from(guest) - i128::from(host);
        let least = pings.iter().map(|(_, guest, after)| offset(*guest, *after)).max()?;
        let most = pings.iter().map(|(before, guest, _)| offset(*guest, *before)).min()?;
        let (first, last) = (pings.first()?, pings.last()?);
        Some(Reading {
            host_ns: first.0.midpoint(last.2),
            offset_ns: (least + most) / 2,
            error_ns: u64::try_from((most - least).abs() / 2).unwrap_or(u64::MAX),
        })
    }

    /// Computes a reading from the time stamp counters: the host's before and after the guest's,
    /// which is ahead by `shift`. Returns `None` if the guest's value was not between them.
    fn counted([before, guest, after]: &[Moment; 3], shift: i64) -> Option<Reading> {
        let at = guest.tsc.wrapping_add_signed(shift.wrapping_neg());
        let ticks = u128::from(after.tsc.checked_sub(before.tsc).filter(|ticks| *ticks > 0)?);
        let since = u128::from(at.checked_sub(before.tsc)?);
        let passed = u128::from(after.mono_ns.checked_sub(before.mono_ns)?);
        let host_ns = before.mono_ns + u64::try_from(passed * since / ticks).ok()?;
        (since <= ticks).then(|| Reading {
            host_ns,
            offset_ns: i128::from(guest.mono_ns) - i128::from(host_ns),
            error_ns: guest.error_ns + before.error_ns.max(after.error_ns),
        })
    }

    /// Returns whether both readings can be true.
    fn agrees(&self, other: &Reading) -> bool {
        let apart = self.offset_ns.abs_diff(other.offset_ns);
        apart <= u128::from(self.error_ns) + u128::from(other.error_ns)
    }
}

impl Alignment {
    /// Returns the conversion between two readings.
    pub fn between(from: Option<Reading>, to: Option<Reading>) -> Option<Alignment> {
        let (from, to) = from.zip(to)?;
        Some(Alignment { from, to, error_ns: from.error_ns.max(to.error_ns) })
    }

    /// Converts a host time to guest time. The offset is interpolated between the readings.
    pub fn to_guest(self, host_ns: u64) -> u64 {
        let span = i128::from(self.to.host_ns.saturating_sub(self.from.host_ns)).max(1);
        let passed = i128::from(host_ns) - i128::from(self.from.host_ns);
        let drift = self.to.offset_ns - self.from.offset_ns;
        let guest = i128::from(host_ns) + self.from.offset_ns + drift * passed / span;
        u64::try_from(guest).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_follows_offset_and_drift() {
        let from = Reading::of(&[(1_000, 501_000, 1_200)]);
        let to = Reading::of(&[(1_001_000, 1_501_200, 1_001_100)]);
        let alignment = Alignment::between(from, to).unwrap();
        assert_eq!(alignment.error_ns, 100);
        assert_eq!(alignment.to_guest(1_100), 501_000);
        assert_eq!(alignment.to_guest(1_001_050), 1_501_200);
        assert!(Alignment::between(from, None).is_none());
    }

    #[test]
    fn the_quickest_ways_there_and_back_bound_the_offset() {
        let quick_there = (1_000, 501_010, 1_900);
        let quick_back = (2_000, 502_700, 2_720);
        let reading = Reading::of(&[quick_there, quick_back]).unwrap();
        assert_eq!((reading.offset_ns, reading.error_ns), (499_995, 15));
        assert!(Reading::of(&[]).is_none());
    }

    #[test]
    fn counters_that_are_shifted_by_a_known_amount_tell_the_offset() {
        let moment = |mono_ns, tsc| Moment { mono_ns, tsc, error_ns: 10 };
        // The counter makes three ticks a nanosecond, and the guest's is 1000 behind.
        let guest = moment(700_000, 3_300);
        let ping = [moment(1_000, 3_000), guest, moment(2_000, 6_000)];
        let reading = Reading::counted(&ping, -1_000).unwrap();
        assert_eq!((reading.host_ns, reading.offset_ns), (1_433, 698_567));
        assert_eq!(reading.error_ns, 20);
        assert!(Reading::counted(&ping, 1_000).is_none(), "before it was asked");
        assert!(Reading::counted(&ping, -9_000).is_none(), "after it was heard");
        let asked = Reading::of(&[(1_000, 700_000, 2_000)]).unwrap();
        assert!(reading.agrees(&asked));
        assert!(!reading.agrees(&Reading { offset_ns: 690_000, ..asked }));
    }
}
