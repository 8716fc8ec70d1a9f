//! The command line.

use clap::Parser;

use crate::bench::Plan;
use crate::locks::Kind;
use crate::work;

/// Measures a lock: throughput, fairness and the time it takes to get it.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Args {
    /// The lock; `none` takes no lock and only burns CPU
    #[arg(long, value_enum)]
    pub lock: Kind,
    /// Number of threads
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: u32,
    /// Seconds to run
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    pub seconds: f64,
    /// Work inside the lock, nanoseconds of an undisturbed CPU
    #[arg(long, default_value_t = 500, value_name = "NS")]
    pub cs: u64,
    /// Work outside the lock, nanoseconds of an undisturbed CPU
    #[arg(long, default_value_t = 500, value_name = "NS")]
    pub outside: u64,
    /// Take this as the length of a work loop instead of measuring it, so that runs that are
    /// compared do the same work: (NS of work) / (this) loops
    #[arg(long, value_name = "NS", value_parser = positive)]
    pub loop_ns: Option<f64>,
    /// Time one in so many acquisitions, at random
    #[arg(long, default_value_t = 16, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub sample: u32,
    /// Run until SIGINT or SIGTERM instead of for --seconds
    #[arg(long)]
    pub until_stopped: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// Returns the plan of the run. Calibrates the work loop, unless its length is given.
    pub fn plan(&self) -> Plan {
        let loop_ns = self.loop_ns.unwrap_or_else(work::calibrate);
        Plan {
            threads: self.threads as usize,
            loop_ns,
            cs_ns: self.cs,
            cs_loops: work::loops(self.cs, loop_ns),
            outside_loops: work::loops(self.outside, loop_ns),
            sample_every: self.sample,
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 86_400.0 => Ok(value),
        _ => Err("give seconds above 0 and at most 86400".into()),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_normal() && value > 0.0 => Ok(value),
        _ => Err("give a number above 0".into()),
    }
}
