//! Claims: every figure that the project states, as data.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

mod source;

pub use source::ClaimSource;

/// One entry of `results/claims.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Its name, such as `lab.loss.rename.2:1`.
    pub id: String,
    /// What it says, in one sentence.
    pub what: String,
    /// The figure; `None` where it has no bound, because the baseline did not finish. What was
    /// not measured is never a claim.
    pub value: Option<f64>,
    /// Lower end of its interval.
    pub lo: Option<f64>,
    /// Upper end of its interval.
    pub hi: Option<f64>,
    /// Whether a figure without a bound is below all others, as a loss is, and not above them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unbounded_below: bool,
    /// Runs it rests on.
    pub n: u64,
    /// Its unit; `x` for a ratio.
    pub unit: String,
    /// What it should be, such as `>= 0.95`; empty for a plain observation.
    #[serde(default)]
    pub target: String,
    /// Whether the figure meets its target; `None` where it has no target.
    pub holds: Option<bool>,
    /// Why it misses its target.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Where it comes from: lab or sim, accelerator, kernel.
    pub label: String,
    /// The experiment's file.
    pub experiment: String,
    /// What re-measures it from a fresh clone.
    pub command: String,
    /// When it was measured, YYYY-MM-DD.
    pub date: String,
    /// The commit that measured it.
    pub commit: String,
    /// Why no committed runs give the figure again; empty for one that a test derives from them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub not_derived: String,
}

impl Claim {
    /// Judges the figure by its target. A claim that misses none needs no reason.
    ///
    /// # Errors
    /// A target that is neither empty nor a target.
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

    /// The figure as a number, infinite where it has no bound.
    fn number(&self) -> f64 {
        let unbounded = if self.unbounded_below { f64::NEG_INFINITY } else { f64::INFINITY };
        self.value.unwrap_or(unbounded)
    }
}

/// A target such as `>= 0.95` or `<= 8`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// At least.
    AtLeast(f64),
    /// At most.
    AtMost(f64),
}

impl Target {
    /// Whether a value meets the target.
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
    /// Its id; placeholders such as `{workload}` are replaced, one claim each.
    pub id: String,
    /// What it says; the same replacements.
    pub what: String,
    /// Where the figure comes from.
    pub from: ClaimSource,
    /// Only this topology.
    pub topology: Option<String>,
    /// Only this scheduler.
    pub scheduler: Option<String>,
    /// What speeds are compared with: a scheduler, or `oracle`, the static choice that is best
    /// in the other blocks; without it, the baseline scheduler.
    pub against: Option<String>,
    /// The topology whose cells speeds are compared with; without it, the cell's own.
    pub against_topology: Option<String>,
    /// Only this workload.
    pub workload: Option<String>,
    /// All but this workload: a second figure beside that of all.
    pub without: Option<String>,
    /// The co-metric that is compared (`figure-cut`; without it, what the workload measures), or
    /// whose median is taken (`figure-median`), or which is 1 or 0 (`figure-share`); or the
    /// latency (`latency-quantile` and its like).
    pub figure: Option<String>,
    /// Only this class of lengths, its lower bound in milliseconds (`sense-recall`).
    pub length: Option<String>,
    /// What it should be, such as `<= 8`.
    #[serde(default)]
    pub target: String,
    /// Why it misses its target, should it.
    #[serde(default)]
    pub reason: String,
}

impl ClaimSpec {
    /// Checks that the spec says nothing without effect.
    ///
    /// # Errors
    /// The key that is wrong, and what is wrong with it.
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
        // Unbounded: what it is compared with did not finish.
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
        // Files from before have no such field.
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
