//! The output.

use std::fmt::Write;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::args::Args;
use crate::bench::{Measured, Plan};

/// The result. Its serialised form is the format of `--json`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of this format.
    pub format: u32,
    /// The lock, as on the command line.
    pub lock: String,
    /// Number of threads.
    pub threads: u32,
    /// Requested work inside the lock, in nanoseconds.
    pub cs_ns: u64,
    /// Requested work outside the lock, in nanoseconds.
    pub outside_ns: u64,
    /// The loops of that work inside the lock.
    pub cs_loops: u64,
    /// The loops of that work outside the lock.
    pub outside_loops: u64,
    /// Calibrated length of one loop, in nanoseconds.
    pub loop_ns: f64,
    /// Seconds from the start of all threads to the end.
    pub elapsed_s: f64,
    /// Whether a signal ended the run.
    pub interrupted: bool,
    /// Operations of all threads.
    pub operations: u64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// Operations of each thread.
    pub per_thread: Vec<u64>,
    /// Jain's fairness index over `per_thread`: 1 if all are equal, 1/threads if one thread did
    /// all. Null if no operation was done.
    pub jain: Option<f64>,
    /// The time that acquisitions took. Null if none was timed.
    pub wait: Option<Wait>,
    /// Share of the critical sections after timed acquisitions that took over a millisecond longer
    /// than their work, because their thread or its vCPU lost the CPU meanwhile. Null if none was
    /// timed.
    pub hit_share: Option<f64>,
    /// Threads that still waited when the run ended. Their last wait is not in `wait`.
    pub gave_up: u32,
    /// Operations that two threads did at once. Any other value than 0 reveals a broken lock.
    pub lost_updates: u64,
}

/// Percentiles of the time that acquisitions took, within 1 %, in nanoseconds.
#[derive(Debug, Serialize)]
pub struct Wait {
    /// Mean number of acquisitions for each timed one, which was chosen at random.
    pub sample_every: u32,
    /// Number of timed acquisitions.
    pub samples: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// The longest timed acquisition.
    pub max_ns: u64,
}

impl Report {
    /// Combines the figures of a run.
    pub fn new(args: &Args, plan: &Plan, measured: &Measured, interrupted: bool) -> Self {
        let operations: u64 = measured.per_thread.iter().sum();
        let elapsed_s = measured.elapsed.as_secs_f64();
        Self {
            format: 1,
            lock: lock_name(args),
            threads: args.threads,
            cs_ns: args.cs,
            outside_ns: args.outside,
            cs_loops: plan.cs_loops,
            outside_loops: plan.outside_loops,
            loop_ns: plan.loop_ns,
            elapsed_s,
            interrupted,
            operations,
            ops_per_s: operations as f64 / elapsed_s,
            per_thread: measured.per_thread.clone(),
            jain: jain(&measured.per_thread),
            wait: Wait::new(&measured.waits, plan.sample_every),
            hit_share: match measured.waits.len() {
                0 => None,
                timed => Some(measured.hits as f64 / timed as f64),
            },
            gave_up: measured.gave_up,
            lost_updates: measured.lost_updates,
        }
    }

    /// Returns the report as one line of JSON.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("plain numbers and strings") + "\n"
    }

    /// Returns the report as text for people.
    pub fn text(&self) -> String {
        let mut out = format!(
            "{}, {} threads, {} ns inside, {} ns outside, {:.2} s\n{:.0} ops/s",
            self.lock, self.threads, self.cs_ns, self.outside_ns, self.elapsed_s, self.ops_per_s,
        );
        if let Some(jain) = self.jain {
            write!(out, ", fairness (Jain) {jain:.3}").expect("a string takes all");
        }
        let per_thread: Vec<String> = self.per_thread.iter().map(u64::to_string).collect();
        write!(out, "\nper thread: {}\n", per_thread.join(" ")).expect("a string takes all");
        if let Some(wait) = &self.wait {
            writeln!(
                out,
                "wait, ns: p50 {} p90 {} p99 {} p99.9 {} max {} ({} samples, 1 in {})",
                wait.p50_ns,
                wait.p90_ns,
                wait.p99_ns,
                wait.p999_ns,
                wait.max_ns,
                wait.samples,
                wait.sample_every,
            )
            .expect("a string takes all");
        }
        if let Some(share) = self.hit_share {
            let percent = share * 100.0;
            writeln!(out, "{percent:.2} % of the critical sections lost the CPU for 1 ms or more")
                .expect("a string takes all");
        }
        if self.gave_up > 0 {
            writeln!(out, "{} threads still waited at the end", self.gave_up).expect("a string");
        }
        out
    }
}

impl Wait {
    fn new(waits: &Histogram<u64>, sample_every: u32) -> Option<Self> {
        (!waits.is_empty()).then(|| Self {
            sample_every,
            samples: waits.len(),
            p50_ns: waits.value_at_quantile(0.5),
            p90_ns: waits.value_at_quantile(0.9),
            p99_ns: waits.value_at_quantile(0.99),
            p999_ns: waits.value_at_quantile(0.999),
            max_ns: waits.max(),
        })
    }
}

fn lock_name(args: &Args) -> String {
    let value = clap::ValueEnum::to_possible_value(&args.lock);
    value.map_or_else(String::new, |value| value.get_name().into())
}

/// Returns the fairness index of R. Jain, D. Chiu, W. Hawe, "A quantitative measure of fairness and
/// discrimination for resource allocation in shared computer systems", DEC-TR-301, 1984.
fn jain(shares: &[u64]) -> Option<f64> {
    let sum: f64 = shares.iter().map(|&x| x as f64).sum();
    let squares: f64 = shares.iter().map(|&x| (x as f64).powi(2)).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_of_equal_of_one_and_of_none() {
        assert_eq!(jain(&[5, 5, 5, 5]), Some(1.0));
        assert_eq!(jain(&[8, 0, 0, 0]), Some(0.25));
        assert_eq!(jain(&[0, 0]), None);
    }

    #[test]
    fn percentiles_of_nothing_are_absent() {
        let mut waits = Histogram::new(2).unwrap();
        assert!(Wait::new(&waits, 16).is_none());
        waits.record(100).unwrap();
        assert_eq!(Wait::new(&waits, 16).unwrap().max_ns, 100);
    }
}
