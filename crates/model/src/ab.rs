//! The rounds of `unspin run --ab`: the same work under the kernel's own scheduler and under
//! unspin, in pairs.

use serde::{Deserialize, Serialize};

use crate::Metric;

/// The scheduler during a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// The kernel's own scheduler.
    Stock,
    /// The scheduler of unspin.
    Unspin,
}

/// The source of a round's figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The time that the command took.
    Duration,
    /// A number in the command's standard output.
    Output,
    /// The increase of a counter, which a command reads before and after each round.
    Counter,
    /// The guest's useful CPU time, a proxy: whether it is the user's work is unknown.
    Guest,
}

/// Result of a round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Duration of the round in seconds.
    pub seconds: f64,
    /// Value of the metric.
    pub value: f64,
    /// Context switches per second in the whole guest; only if the guest itself is the source.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub switches_per_s: Option<f64>,
}

/// One round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Number of the round's pair, from 1.
    pub pair: u32,
    /// The scheduler during the round.
    pub arm: Arm,
    /// Result of the round.
    #[serde(flatten)]
    pub figure: Figure,
}

/// All rounds, in order of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rounds {
    /// The metric that is compared.
    pub metric: Metric,
    /// The option that `unspin run` needs to act in this guest.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub needs: Option<String>,
    /// The source of the metric's value.
    pub source: Source,
    /// Number of pairs that were planned.
    pub pairs: u32,
    /// Seed of the order within the pairs.
    pub seed: u64,
    /// Whether a signal ended the comparison early.
    pub interrupted: bool,
    /// Result of the round before all others, under the kernel's own scheduler. It does not count.
    pub warm_up: Option<Figure>,
    /// Rounds that count. An incomplete pair has one.
    pub rounds: Vec<Round>,
}

impl Rounds {
    /// Returns the complete pairs: the figures under unspin and under the kernel's own scheduler.
    pub fn complete(&self) -> Vec<(Figure, Figure)> {
        let of = |pair, arm| {
            let round = self.rounds.iter().find(|round| round.pair == pair && round.arm == arm);
            round.map(|round| round.figure)
        };
        let pair = |pair| of(pair, Arm::Unspin).zip(of(pair, Arm::Stock));
        (1..=self.pairs).filter_map(pair).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Better;

    #[test]
    fn a_pair_needs_both_rounds() {
        let round = |pair, arm, value| {
            let figure = Figure { seconds: 1.0, value, switches_per_s: None };
            Round { pair, arm, figure }
        };
        let rounds = Rounds {
            metric: Metric { name: "time".into(), unit: "s".into(), better: Better::Lower },
            needs: None,
            source: Source::Duration,
            pairs: 2,
            seed: 1,
            interrupted: true,
            warm_up: None,
            rounds: vec![
                round(1, Arm::Unspin, 2.0),
                round(1, Arm::Stock, 3.0),
                round(2, Arm::Stock, 4.0),
            ],
        };
        let values: Vec<_> = rounds.complete().iter().map(|(a, b)| (a.value, b.value)).collect();
        assert_eq!(values, [(2.0, 3.0)]);
        let json = serde_json::to_string(&rounds.rounds[0]).expect("JSON");
        assert_eq!(json, r#"{"pair":1,"arm":"unspin","seconds":1.0,"value":2.0}"#);
    }
}
