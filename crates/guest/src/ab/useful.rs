//! Measures the guest's own useful time, which is CPU time that was neither idle, off nor spinning,
//! and its context switches. This is a proxy for its work, and the best one that a stock kernel
//! offers.

use std::fs;

use unspin_trace::totals::Totals;

use crate::sense::{SenseError, Settings, remedies};
use crate::spinning::ADDRESSES;
use crate::watch::Sums;

/// Counts useful time and context switches from a start, at next to no cost.
pub struct Useful {
    sums: Sums,
}

/// The counts at a moment. Only the differences between two of them are meaningful.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    seconds: f64,
    /// The seconds that each vCPU was idle, off, or spinning.
    lost_s: Vec<f64>,
    switches: Option<u64>,
}

impl Useful {
    /// Starts the light sensor.
    pub fn start() -> Result<Useful, SenseError> {
        Ok(Useful { sums: Sums::start(&Settings::of_this_machine())? })
    }

    /// Returns how to let the sensor see where the kernel spins, if it does not: then spinning
    /// would count as useful.
    pub fn blind(&self) -> Option<&'static str> {
        let is_it = |hook: &&String| hook.contains(ADDRESSES);
        self.sums.missing().iter().find(is_it).and_then(|_| remedies(&[ADDRESSES.into()]).pop())
    }

    /// Returns the counts so far.
    pub fn counts(&mut self) -> Counts {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Counts::of(&self.sums.totals(), &stat)
    }
}

impl Counts {
    fn of(totals: &Totals, stat: &str) -> Counts {
        let lost_ns = |vcpu: usize| {
            let of = |ns: &[u64]| ns.get(vcpu).copied().unwrap_or(0);
            let spun_ns = totals.looks.get(vcpu).map_or(0, |looks| looks.ns);
            of(&totals.idle_ns) + totals.off[vcpu].ns + spun_ns + of(&totals.user_spin_ns)
        };
        // An offline vCPU has no line.
        let online =
            |vcpu: &usize| stat.lines().any(|line| line.starts_with(&format!("cpu{vcpu} ")));
        let vcpus = (0..totals.off.len()).filter(online);
        Counts {
            seconds: totals.seconds,
            lost_s: vcpus.map(|vcpu| lost_ns(vcpu) as f64 / 1e9).collect(),
            switches: stat.lines().find_map(|line| line.strip_prefix("ctxt ")?.trim().parse().ok()),
        }
    }

    /// Returns the seconds since `before`.
    pub fn seconds_since(&self, before: &Counts) -> f64 {
        self.seconds - before.seconds
    }

    /// Returns the average number of vCPUs that did useful work since `before`. Returns `None` if
    /// no time has passed, or if a vCPU came or went.
    pub fn useful_since(&self, before: &Counts) -> Option<f64> {
        let seconds = self.seconds_since(before);
        if seconds <= 0.0 || self.lost_s.len() != before.lost_s.len() {
            return None;
        }
        let useful = self.lost_s.iter().zip(&before.lost_s).map(|(now, before)| {
            // Idle and off times are accurate to a tick, so their sum may slightly exceed the time.
            (1.0 - (now - before) / seconds).clamp(0.0, 1.0)
        });
        Some(useful.sum())
    }

    /// Returns the context switches per second since `before`.
    pub fn switches_since(&self, before: &Counts) -> Option<f64> {
        let seconds = self.seconds_since(before);
        let count = self.switches?.checked_sub(before.switches?)?;
        (seconds > 0.0).then(|| count as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use unspin_trace::totals::Sum;

    use super::*;

    fn counts(seconds: f64, idle_s: f64, off_s: f64, spun_s: f64, switches: u64) -> Counts {
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let totals = Totals {
            seconds,
            off: vec![Sum { count: 1, ns: ns(off_s) }, Sum::default(), Sum::default()],
            idle_ns: vec![ns(idle_s), 0, 0],
            looks: vec![Sum { count: 1, ns: ns(spun_s) }, Sum::default(), Sum::default()],
            user_spin_ns: vec![],
            ..Totals::default()
        };
        Counts::of(&totals, &format!("cpu  1\ncpu0 1\ncpu1 1\nintr 5\nctxt {switches}\n"))
    }

    #[test]
    fn what_is_left_is_useful() {
        let (before, now) = (counts(1.0, 0.5, 0.0, 0.0, 100), counts(3.0, 1.0, 0.5, 0.5, 300));
        // vCPU 0 lost 1.5 of 2 seconds, vCPU 1 nothing, and vCPU 2 is offline.
        let useful = now.useful_since(&before).unwrap();
        assert!((useful - 1.25).abs() < 1e-9, "{useful}");
        assert_eq!(now.switches_since(&before), Some(100.0));
        assert_eq!(now.useful_since(&now), None);
        assert_eq!(before.switches_since(&now), None);
    }

    #[test]
    fn a_vcpu_that_comes_voids_the_interval() {
        let (before, now) = (Counts::default(), counts(3.0, 1.0, 0.5, 0.5, 300));
        assert_eq!((now.useful_since(&before), now.switches_since(&before)), (None, None));
    }
}
