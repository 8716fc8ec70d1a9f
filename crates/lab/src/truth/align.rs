//! The guest's clock against the host's, by asking the guest the time: the true
//! offset lies within half a round trip of the midpoint (Cristian 1989).

use crate::vm::Vm;

const PINGS: usize = 8;

/// One reading: guest clock minus host clock, at a host time, within an error.
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
    /// Bound on the conversion's error, nanoseconds.
    pub error_ns: u64,
}

/// The best of several readings; `None` when the guest does not answer.
pub fn align(vm: &mut Vm) -> Option<Reading> {
    let pings = (0..PINGS).map_while(|_| vm.ping().ok());
    pings
        .map(|(before, guest, after)| Reading::new(before, guest, after))
        .min_by_key(|r| r.error_ns)
}

impl Reading {
    fn new(before_ns: u64, guest_ns: u64, after_ns: u64) -> Reading {
        let half = (after_ns - before_ns) / 2;
        let host_ns = before_ns + half;
        Reading { host_ns, offset_ns: i128::from(guest_ns) - i128::from(host_ns), error_ns: half }
    }
}

impl Alignment {
    /// The conversion between two readings.
    pub fn between(from: Option<Reading>, to: Option<Reading>) -> Option<Alignment> {
        let (from, to) = from.zip(to)?;
        Some(Alignment { from, to, error_ns: from.error_ns.max(to.error_ns) })
    }

    /// Guest time at a host time, the offset interpolated between the readings.
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
        let from = Reading::new(1_000, 501_000, 1_200);
        let to = Reading::new(1_001_000, 1_501_200, 1_001_100);
        let alignment = Alignment::between(Some(from), Some(to)).unwrap();
        assert_eq!(alignment.error_ns, 100);
        assert_eq!(alignment.to_guest(1_100), 501_000);
        assert_eq!(alignment.to_guest(1_001_050), 1_501_200);
        assert!(Alignment::between(Some(from), None).is_none());
    }
}
