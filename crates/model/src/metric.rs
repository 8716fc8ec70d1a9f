//! The metric of a workload.

use serde::{Deserialize, Serialize};

/// The better direction of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// A rate or a score: more is better.
    Higher,
    /// A time or a latency: less is better.
    Lower,
}

/// The name, unit and direction of a workload's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Name of the metric, such as `renames` or `time`.
    pub name: String,
    /// Unit, such as `ops/s` or `s`.
    pub unit: String,
    /// The better direction.
    pub better: Better,
}

impl Metric {
    /// Returns a measured value as a speed: more is better whatever the metric's direction.
    ///
    /// A time becomes its reciprocal. A run that did not finish (`None`) has speed 0, which ranks
    /// it below every run that did.
    pub fn speed(&self, value: Option<f64>) -> f64 {
        match (value, self.better) {
            (None, _) => 0.0,
            (Some(v), Better::Higher) => v,
            (Some(v), Better::Lower) if v > 0.0 => 1.0 / v,
            (Some(_), Better::Lower) => f64::INFINITY,
        }
    }

    /// Returns the inverse of [`Metric::speed`]: `None` for a speed of 0 of a lower-is-better
    /// metric (the run did not finish).
    pub fn value(&self, speed: f64) -> Option<f64> {
        match self.better {
            Better::Higher => Some(speed),
            Better::Lower if speed > 0.0 => Some(1.0 / speed),
            Better::Lower => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(better: Better) -> Metric {
        Metric { name: "m".into(), unit: "u".into(), better }
    }

    #[test]
    fn unfinished_runs_rank_below_every_finished_one() {
        for better in [Better::Higher, Better::Lower] {
            let m = metric(better);
            assert!(m.speed(None) < m.speed(Some(1e9)));
            assert!(m.speed(None) < m.speed(Some(1e-9)));
        }
    }

    #[test]
    fn speed_and_value_are_inverse() {
        for better in [Better::Higher, Better::Lower] {
            let m = metric(better);
            let back = m.value(m.speed(Some(2.5))).unwrap();
            assert!((back - 2.5).abs() < 1e-12);
        }
        assert_eq!(metric(Better::Lower).value(0.0), None);
    }
}
