//! Totals from /proc/PID/task/TID/schedstat: time on a CPU, and time waiting for a CPU.

use std::fs;

use unspin_model::TruthSummary;

/// Nanoseconds on and off, summed over a VM's vCPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Nanoseconds on a pCPU.
    pub on_ns: u64,
    /// Nanoseconds waiting for a pCPU.
    pub off_ns: u64,
}

impl Totals {
    /// Reads the counters. They are zero if schedstat is not available.
    pub fn read(pid: u32, threads: &[i32]) -> Totals {
        let texts = threads
            .iter()
            .filter_map(|tid| fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok());
        texts.filter_map(|text| parse(&text)).fold(Totals::default(), |sum, one| Totals {
            on_ns: sum.on_ns + one.on_ns,
            off_ns: sum.off_ns + one.off_ns,
        })
    }

    /// Returns the difference from an earlier reading.
    pub fn since(self, before: Totals) -> Totals {
        Totals {
            on_ns: self.on_ns.saturating_sub(before.on_ns),
            off_ns: self.off_ns.saturating_sub(before.off_ns),
        }
    }

    /// Returns the totals as the truth of a window of `window_ns` nanoseconds.
    pub fn summary(self, window_ns: u64, vcpus: u32) -> TruthSummary {
        let window_s = window_ns as f64 / 1e9;
        let (on_s, off_s) = (self.on_ns as f64 / 1e9, self.off_ns as f64 / 1e9);
        TruthSummary {
            method: "schedstat".into(),
            window_s,
            on_s,
            off_s,
            idle_s: (window_s * f64::from(vcpus) - on_s - off_s).max(0.0),
            ..TruthSummary::default()
        }
    }
}

fn parse(text: &str) -> Option<Totals> {
    let mut words = text.split_whitespace();
    let on_ns = words.next()?.parse().ok()?;
    let off_ns = words.next()?.parse().ok()?;
    Some(Totals { on_ns, off_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ended_takes_nothing_away() {
        let before = Totals { on_ns: 5, off_ns: 7 };
        assert_eq!(Totals { on_ns: 0, off_ns: 9 }.since(before), Totals { on_ns: 0, off_ns: 2 });
    }

    #[test]
    fn schedstat_line_is_read() {
        assert_eq!(parse("1234 567 89\n"), Some(Totals { on_ns: 1234, off_ns: 567 }));
        assert_eq!(parse(""), None);
    }
}
