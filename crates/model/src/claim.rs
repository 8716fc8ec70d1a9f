//! Claims: every figure that the project states, as data.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

mod source;

pub use source::ClaimSource;

/// One entry of `results/claims.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Name of the claim, such as `lab.loss.rename.2:1`.
    pub id: String,
    /// The statement, in one sentence.
    pub what: String,
    /// The figure; `None` if it has no bound because the baseline did not finish. A figure that was
    /// not measured is never a claim.
    pub value: Option<f64>,
    /// Lower end of the figure's interval.
    pub lo: Option<f64>,
    /// Upper end of the figure's interval.
    pub hi: Option<f64>,
    /// Whether a figure without a bound is below all others, as a loss is, instead of above them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unbounded_below: bool,
    /// How many values it rests on: runs, or what its source counts, such as boots.
    pub n: u64,
    /// Unit of the figure; `x` for a ratio.
    pub unit: String,
    /// Target of the figure, such as `>= 0.95`; empty for a plain observation.
    #[serde(default)]
    pub target: String,
    /// Whether the figure meets its target; `None` if it has no target.
    pub holds: Option<bool>,
    /// Why the figure misses its target.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Origin of the figure: lab or sim, accelerator, kernel.
    pub label: String,
    /// File of the experiment.
    pub experiment: String,
    /// Command that measures the figure again from a fresh clone.
    pub command: String,
    /// Date of the measurement, YYYY-MM-DD.
    pub date: String,
    /// Commit of the checkout that measured the figure.
    pub commit: String,
    /// Why no committed runs give the figure again; empty if a test derives it from them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub not_derived: String,
}

impl Claim {
    /// Judges the figure by its target, and removes the reason of a claim that does not miss its
    /// target.
    ///
    /// # Errors
    /// Returns an error if the target is neither empty nor valid.
    pub fn judge(&mut self) -> Result<(), String> {
        self.holds = match self.target.as_str() {
            "" => None,
            target => {
                let target: Target = target.parse()?;
                Some(target.met_by(self.number()))
            }
        };
        if self.holds != Some(false) {
            self.reason.clear();
        }
        Ok(())
    }

    /// Returns the figure as a number, infinite if it has no bound.
    fn number(&self) -> f64 {
        let unbounded = if self.unbounded_below { f64::NEG_INFINITY } else { f64::INFINITY };
        self.value.unwrap_or(unbounded)
    }
}

/// A target such as `>= 0.95` or `<= 8`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// The value is at least this.
    AtLeast(f64),
    /// The value is at most this.
    AtMost(f64),
}

impl Target {
    /// Returns whether a value meets the target.
    pub fn met_by(self, value: f64) -> bool {
        match self {
            Target::AtLeast(bound) => value >= bound,
            Target::AtMost(bound) => value <= bound,
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = |number: &str| {
            number.trim().parse::<f64>().map_err(|e| format!("target `{text}`: {e}"))
        };
        match text.trim() {
            t if t.starts_with(">=") => Ok(Target::AtLeast(parse(&t[2..])?)),
            t if t.starts_with("<=") => Ok(Target::AtMost(parse(&t[2..])?)),
            _ => Err(format!("target `{text}`: write `>= NUMBER` or `<= NUMBER`")),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::AtLeast(bound) => write!(f, ">= {bound}"),
            Target::AtMost(bound) => write!(f, "<= {bound}"),
        }
    }
}

/// A claim that an experiment's summary supports: a `[[claim]]` of `claims/EXPERIMENT.toml`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimSpec {
    /// Name of the claim; placeholders such as `{workload}` are replaced, for one claim each.
    pub id: String,
    /// The statement; with the same replacements.
    pub what: String,
    /// Source of the figure.
    pub from: ClaimSource,
    /// Only this topology.
    pub topology: Option<String>,
    /// Only this scheduler.
    pub scheduler: Option<String>,
    /// Baseline of speeds: a scheduler, or `oracle`, the static choice that is best in the other
    /// blocks. Without it, the baseline is the baseline scheduler.
    pub against: Option<String>,
    /// Topology of the cells with which speeds are compared; without it, the cell's own topology.
    pub against_topology: Option<String>,
    /// Only this workload.
    pub workload: Option<String>,
    /// All workloads but this one: a second figure in addition to that of all.
    pub without: Option<String>,
    /// The co-metric that is compared (`figure-cut`; without it, the workload's metric), whose
    /// median is taken (`figure-median`), or which is 1 or 0 (`figure-share`). For
    /// `latency-quantile` and its like, the latency.
    pub figure: Option<String>,
    /// Only this class of lengths, by its lower bound in milliseconds (`sense-recall`).
    pub length: Option<String>,
    /// Target of the figure, such as `<= 8`.
    #[serde(default)]
    pub target: String,
    /// Why the figure misses its target, if it does.
    #[serde(default)]
    pub reason: String,
}

impl ClaimSpec {
    /// Checks that every part of the spec has an effect.
    ///
    /// # Errors
    /// Returns the invalid key, and what is wrong with it.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        self.check_fields()?;
        self.check_placeholders()?;
        match self.target.as_str() {
            "" if self.reason.is_empty() => Ok(()),
            "" => Err(("reason", "a reason needs a `target` that can be missed".to_owned())),
            target => target.parse::<Target>().map(drop).map_err(|error| ("target", error)),
        }
    }

    fn check_fields(&self) -> Result<(), (&'static str, String)> {
        let given = [
            ("topology", &self.topology),
            ("scheduler", &self.scheduler),
            ("against", &self.against),
            ("against_topology", &self.against_topology),
            ("workload", &self.workload),
            ("without", &self.without),
            ("figure", &self.figure),
            ("length", &self.length),
        ];
        let used = self.from.fields();
        let idle = |(key, value): &&(&str, &Option<String>)| value.is_some() && !used.contains(key);
        if let Some((key, _)) = given.iter().find(idle) {
            let uses = if used.is_empty() { "no such field".into() } else { used.join(", ") };
            return Err((key, format!("this source does not use `{key}`; it uses {uses}")));
        }
        if self.from.needs_figure() && self.figure.is_none() {
            return Err(("from", "this source needs a `figure`".to_owned()));
        }
        if self.from.needs_other_topology() && self.against_topology.is_none() {
            return Err(("from", "this source needs an `against_topology`".to_owned()));
        }
        if self.from.needs_scheduler() && self.scheduler.is_none() {
            return Err(("from", "this source needs a `scheduler`".to_owned()));
        }
        Ok(())
    }

    fn check_placeholders(&self) -> Result<(), (&'static str, String)> {
        let known = self.from.placeholders();
        for (key, text) in [("id", &self.id), ("what", &self.what)] {
            let rest = known.iter().fold(text.clone(), |text, name| text.replace(name, ""));
            if let Some(at) = rest.find('{') {
                let name = rest[at..].split_inclusive('}').next().unwrap_or_default();
                return Err((key, format!("this source does not fill in `{name}`")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> ClaimSpec {
        ClaimSpec {
            id: "x.{workload}".into(),
            what: "speed".into(),
            from: ClaimSource::SpeedRatio,
            topology: None,
            scheduler: Some("unspin".into()),
            against: None,
            against_topology: None,
            workload: None,
            without: None,
            figure: None,
            length: None,
            target: ">= 1".into(),
            reason: "futex".into(),
        }
    }

    #[test]
    fn a_spec_says_nothing_without_effect() {
        assert_eq!(spec().check(), Ok(()));
        let some = || Some("x".to_owned());
        let wrong = [
            (ClaimSpec { target: "= 1".into(), ..spec() }, "target", "write `>= NUMBER`"),
            (ClaimSpec { target: String::new(), ..spec() }, "reason", "needs a `target`"),
            (ClaimSpec { figure: some(), ..spec() }, "figure", "does not use `figure`"),
            (ClaimSpec { scheduler: None, ..spec() }, "from", "needs a `scheduler`"),
            (ClaimSpec { id: "x.{length}".into(), ..spec() }, "id", "fill in `{length}`"),
            (ClaimSpec { what: "{x".into(), ..spec() }, "what", "fill in `{x`"),
            (
                ClaimSpec { from: ClaimSource::LabCpu, id: "x".into(), ..spec() },
                "scheduler",
                "it uses no such field",
            ),
            (
                ClaimSpec { from: ClaimSource::SchedulerRatio, workload: some(), ..spec() },
                "workload",
                "it uses topology, scheduler",
            ),
        ];
        for (spec, key, message) in wrong {
            let (at, found) = spec.check().unwrap_err();
            assert!(at == key && found.contains(message), "{at}: {found}");
        }
    }

    fn claim(value: Option<f64>, target: &str) -> Claim {
        let json = serde_json::json!({
            "id": "x", "what": "", "value": value, "lo": null, "hi": null, "n": 1,
            "unit": "x", "target": target, "holds": null, "reason": "why", "label": "",
            "experiment": "", "command": "", "date": "", "commit": "",
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_claim_without_a_target_is_neither_met_nor_missed() {
        let judged = |value, target: &str| {
            let mut claim = claim(value, target);
            claim.judge().map(|()| (claim.holds, claim.reason))
        };
        assert_eq!(judged(Some(1.0), ""), Ok((None, String::new())));
        assert_eq!(judged(Some(1.0), ">= 1"), Ok((Some(true), String::new())));
        assert_eq!(judged(Some(0.9), ">= 1"), Ok((Some(false), "why".into())));
        // The figure is unbounded, because its baseline did not finish.
        assert_eq!(judged(None, ">= 1"), Ok((Some(true), String::new())));
        assert_eq!(judged(None, "<= 1"), Ok((Some(false), "why".into())));
        assert!(judged(Some(1.0), "about 1").is_err());
    }

    #[test]
    fn a_figure_without_a_bound_may_be_below_all_others() {
        for (target, met) in [("<= 8", true), (">= 8", false)] {
            let mut loss = Claim { unbounded_below: true, ..claim(None, target) };
            loss.judge().unwrap();
            assert_eq!(loss.holds, Some(met), "{target}");
            let text = serde_json::to_string(&loss).unwrap();
            assert_eq!(serde_json::from_str::<Claim>(&text).unwrap(), loss);
        }
        // Older files have no such field.
        let ratio = serde_json::to_string(&claim(None, ">= 1")).unwrap();
        assert!(!ratio.contains("unbounded"), "{ratio}");
    }

    #[test]
    fn targets_parse_print_and_judge() {
        let target: Target = ">= 0.95".parse().unwrap();
        assert!(target.met_by(0.95) && !target.met_by(0.94));
        assert_eq!(target.to_string(), ">= 0.95");
        let target: Target = "<=8".parse().unwrap();
        assert!(target.met_by(8.0) && !target.met_by(8.1));
        assert!("= 3".parse::<Target>().is_err());
        assert!(">= x".parse::<Target>().is_err());
    }
}
