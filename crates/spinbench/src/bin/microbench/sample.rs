//! Repeated measurements of one cost, and their summary.

use std::fmt;
use std::io;

use serde::Serialize;

use crate::os::now_ns;

/// The time limit for one cost, in nanoseconds, so that all of them together take at most half a
/// second.
const BUDGET_NS: u64 = 40_000_000;

/// Nanoseconds per operation, one value for each batch.
#[derive(Debug, Clone)]
pub struct Samples(Vec<f64>);

/// A cost. Its serialised form is the format of `--json`.
#[derive(Debug, Serialize)]
pub struct Cost {
    /// The cost's name, the key of this object.
    #[serde(skip)]
    pub name: &'static str,
    /// The median of the batches, in nanoseconds per operation.
    pub median_ns: f64,
    /// The 90th percentile of the batches, in nanoseconds per operation.
    pub p90_ns: f64,
    /// Number of batches.
    pub n: usize,
}

impl Samples {
    /// Takes `count` samples, or fewer if the time is up, after one that warms up caches.
    pub fn take(count: usize, mut one: impl FnMut() -> io::Result<f64>) -> io::Result<Samples> {
        one()?;
        let until = now_ns() + BUDGET_NS;
        let mut values = vec![one()?];
        while values.len() < count && now_ns() < until {
            values.push(one()?);
        }
        Ok(Samples(values))
    }

    /// Times `count` batches of `operations` operations.
    pub fn of_batches(
        count: usize,
        operations: u32,
        mut operation: impl FnMut() -> io::Result<()>,
    ) -> io::Result<Samples> {
        Samples::take(count, || {
            let start = now_ns();
            (0..operations).try_for_each(|_| operation())?;
            Ok((now_ns() - start) as f64 / f64::from(operations))
        })
    }

    /// Returns the cost of one of `parts` equal parts of the operation.
    pub fn divided_by(self, parts: f64) -> Samples {
        Samples(self.0.into_iter().map(|value| value / parts).collect())
    }

    /// Returns median and 90th percentile.
    pub fn cost(mut self, name: &'static str) -> Cost {
        self.0.sort_by(f64::total_cmp);
        Cost { name, median_ns: self.quantile(0.5), p90_ns: self.quantile(0.9), n: self.0.len() }
    }

    /// Returns a quantile of sorted samples, to a tenth of a nanosecond.
    fn quantile(&self, q: f64) -> f64 {
        let last = self.0.len() - 1;
        (10.0 * self.0[(last as f64 * q).round() as usize]).round() / 10.0
    }
}

impl TryFrom<Vec<f64>> for Samples {
    type Error = io::Error;

    fn try_from(values: Vec<f64>) -> io::Result<Samples> {
        if values.is_empty() {
            let reason = "another CPU was too busy for an IPI to be seen; repeat it alone";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, reason));
        }
        Ok(Samples(values))
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:.1} {:.1} {}", self.name, self.median_ns, self.p90_ns, self.n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let samples = Samples((1..=11).rev().map(f64::from).collect());
        let cost = samples.cost("x");
        assert_eq!((cost.median_ns, cost.p90_ns, cost.n), (6.0, 10.0, 11));
        assert_eq!(cost.to_string(), "x 6.0 10.0 11");
    }

    #[test]
    fn a_failed_operation_ends_the_measurement() {
        assert!(Samples::of_batches(3, 2, || Err(io::Error::other("no"))).is_err());
        assert_eq!(Samples::of_batches(3, 2, || Ok(())).unwrap().0.len(), 3);
    }
}
