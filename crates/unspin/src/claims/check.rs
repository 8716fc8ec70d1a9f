//! `unspin claims check`: repeats the measurements behind claims.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use unspin_lab::experiment::Experiment;
use unspin_lab::interrupt;
use unspin_lab::run::{Bar, Finish, Options, execute};
use unspin_model::class::Class;
use unspin_model::{Accel, Claim};
use unspin_report::claims::figure;

use super::derive::{self, Gaps};
use crate::failure::of_class;
use crate::lab::options;
use crate::out;

/// Largest difference between two equal values without an interval, relative to the larger one.
const ALIKE: f64 = 0.1;
/// The same limit in virtual time, where runs repeat to the bit.
const ROUNDING: f64 = 1e-9;

/// The result of comparing a claim with a new measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Finding {
    /// The new measurement meets the target, as claimed.
    Met,
    /// The new measurement misses the target, as claimed.
    StillMissed,
    /// The new measurement meets the target, but the claim misses it.
    NowMet,
    /// The new measurement misses the target, but the claim meets it.
    NowMissed,
    /// The claim has no target, and the intervals overlap.
    Overlaps,
    /// The claim has neither target nor interval, and the values are about equal.
    Agrees,
    /// The claim has no target, and the intervals or values differ.
    Differs,
    /// The experiment did not yield this figure.
    NotMeasured,
}

impl Finding {
    fn of(claim: &Claim, now: Option<&Claim>) -> Finding {
        let Some(now) = now else { return Finding::NotMeasured };
        match (claim.holds, now.holds) {
            (_, Some(true)) if claim.holds == Some(false) => Finding::NowMet,
            (_, Some(true)) => Finding::Met,
            (Some(false), Some(false)) => Finding::StillMissed,
            (_, Some(false)) => Finding::NowMissed,
            (_, None) => Finding::without_target(claim, now),
        }
    }

    fn without_target(claim: &Claim, now: &Claim) -> Finding {
        match (interval(claim), interval(now)) {
            (Some((lo, hi)), Some((now_lo, now_hi))) if lo <= now_hi && now_lo <= hi => {
                Finding::Overlaps
            }
            (Some(_), Some(_)) => Finding::Differs,
            _ if alike(claim, now) => Finding::Agrees,
            _ => Finding::Differs,
        }
    }

    /// Returns whether the claim may stay, or only improved.
    fn confirms(self) -> bool {
        !matches!(self, Finding::NowMissed | Finding::Differs | Finding::NotMeasured)
    }

    fn word(self) -> &'static str {
        match self {
            Finding::Met => "met",
            Finding::StillMissed => "still missed",
            Finding::NowMet => "now met",
            Finding::NowMissed => "NOW MISSED",
            Finding::Overlaps => "overlaps",
            Finding::Agrees => "agrees",
            Finding::Differs => "DIFFERS",
            Finding::NotMeasured => "NOT MEASURED",
        }
    }
}

/// A claim and its new measurement.
#[derive(Serialize)]
struct Checked {
    id: String,
    claimed: Option<f64>,
    measured: Option<f64>,
    finding: Finding,
    /// Whether the claim may stay, or only improved.
    confirmed: bool,
    text: String,
}

/// Runs the experiments behind the matching claims, each in a new folder below `out`, and compares
/// the figures. Fails if a claim is not confirmed.
pub fn run(
    claims: &[Claim],
    pattern: Option<&str>,
    out: &Path,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let matching = super::matching(claims, pattern.unwrap_or("*"))?;
    let (wanted, others): (Vec<&Claim>, Vec<&Claim>) =
        matching.into_iter().partition(|claim| claim.experiment.ends_with(".toml"));
    for claim in &others {
        note!("{}: not measured by an experiment; run `{}`", claim.id, claim.command);
    }
    let experiments: BTreeSet<(&str, Option<&str>)> =
        wanted.iter().map(|c| (c.experiment.as_str(), accelerator(&c.label))).collect();
    interrupt::install()?;
    let mut measured = Vec::new();
    for (file, accel) in experiments {
        let mut experiment = Experiment::load(file)?;
        let accel = accel.and_then(Accel::parse);
        if let Some(accel) = accel {
            experiment.force_accel(accel)?;
        }
        let options = Options { out: out.to_owned(), fresh: true, accel, ..options() };
        let (finish, folder) = execute(&experiment, &options, &mut Bar::new())?;
        note!("{}: measured into {}", experiment.name, folder.display());
        if finish == Finish::Interrupted {
            let text = "interrupted; the same command resumes the check";
            return Err(of_class(Class::Interrupted, text));
        }
        measured.extend(derive::of_folder(&folder, Gaps::Allowed)?);
    }
    let checked: Vec<Checked> = wanted.iter().map(|claim| check(claim, &measured)).collect();
    if json {
        out::json_list(1, "claims", &checked)?;
    } else {
        for one in &checked {
            out::line(format_args!("{:12}  {}: {}", one.finding.word(), one.id, one.text))?;
        }
    }
    let all = others.is_empty() && checked.iter().all(|one| one.confirmed);
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the accelerator of a label such as `lab/tcg, kernel 6.12`, or `None` if labels differ.
/// Figures are comparable only if their accelerators are equal.
fn accelerator(label: &str) -> Option<&str> {
    let mut all = label.split("; ").map(|one| {
        let (_, how) = one.split_once('/')?;
        how.split(',').next()?.rsplit(' ').next()
    });
    let first = all.next()??;
    all.all(|other| other == Some(first)).then_some(first)
}

fn check(claim: &Claim, measured: &[Claim]) -> Checked {
    let now = measured.iter().find(|other| other.id == claim.id);
    let finding = Finding::of(claim, now);
    let found = now.map_or_else(|| "no figure".to_owned(), figure);
    Checked {
        id: claim.id.clone(),
        claimed: claim.value,
        measured: now.and_then(|now| now.value),
        finding,
        confirmed: finding.confirms(),
        text: format!("claimed {}, now {found}", figure(claim)),
    }
}

/// Returns both ends of the interval, one of which may be infinite. Returns `None` for a figure
/// without an interval.
fn interval(claim: &Claim) -> Option<(f64, f64)> {
    let ends = (claim.lo.unwrap_or(f64::NEG_INFINITY), claim.hi.unwrap_or(f64::INFINITY));
    (claim.lo.is_some() || claim.hi.is_some()).then_some(ends)
}

/// Returns whether two figures are about equal. Both may lack a value, but only if the same bound
/// is infinite.
fn alike(claim: &Claim, now: &Claim) -> bool {
    let accel = accelerator(&claim.label).and_then(Accel::parse);
    let apart = if accel.is_some_and(Accel::is_deterministic) { ROUNDING } else { ALIKE };
    match (claim.value, now.value) {
        (Some(one), Some(other)) => (one - other).abs() <= apart * one.abs().max(other.abs()),
        (None, None) => claim.unbounded_below == now.unbounded_below,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(lo: f64, hi: f64, target: &str) -> Claim {
        let mut claim: Claim = serde_json::from_value(serde_json::json!({
            "id": "x", "what": "", "value": (lo + hi) / 2.0, "lo": lo, "hi": hi, "n": 10,
            "unit": "x", "target": target, "holds": null, "label": "", "experiment": "",
            "command": "", "date": "", "commit": "",
        }))
        .expect("a claim");
        claim.judge().expect("a target");
        claim
    }

    #[test]
    fn the_accelerator_is_that_of_the_label() {
        for (label, accel) in [
            ("lab/tcg, kernel 6.12", Some("tcg")),
            ("lab/kvm nested in tcg, kernel 6.12", Some("tcg")),
            ("lab/vt, kernel 6.12; lab/vt, kernel 6.18", Some("vt")),
            ("lab/kvm, kernel 6.12; lab/tcg, kernel 6.12", None),
            ("this machine", None),
        ] {
            assert_eq!(accelerator(label), accel, "{label}");
        }
    }

    #[test]
    fn without_a_target_the_intervals_must_overlap() {
        let claimed = claim(1.0, 2.0, "");
        assert_eq!(Finding::of(&claimed, Some(&claim(1.9, 3.0, ""))), Finding::Overlaps);
        assert_eq!(Finding::of(&claimed, Some(&claim(2.1, 3.0, ""))), Finding::Differs);
        assert!(!Finding::Differs.confirms());
    }

    #[test]
    fn without_intervals_the_values_must_be_alike() {
        let claim = |value: Option<f64>, label: &str| Claim {
            value,
            lo: None,
            hi: None,
            label: label.into(),
            ..claim(1.0, 2.0, "")
        };
        let (real, virtual_time) = ("lab/tcg, kernel 6.12", "lab/vt, kernel 6.12");
        for (label, claimed, now, finding) in [
            (real, Some(10.0), Some(10.9), Finding::Agrees),
            (real, Some(10.0), Some(11.5), Finding::Differs),
            (real, Some(0.0), Some(0.0), Finding::Agrees),
            (virtual_time, Some(10.0), Some(10.0), Finding::Agrees),
            (virtual_time, Some(10.0), Some(10.001), Finding::Differs),
            (virtual_time, None, Some(10.0), Finding::Differs),
            (real, Some(10.0), None, Finding::Differs),
            (real, None, None, Finding::Agrees),
        ] {
            let found = Finding::of(&claim(claimed, label), Some(&claim(now, label)));
            assert_eq!(found, finding, "{label}: {claimed:?} {now:?}");
        }
        let below = Claim { unbounded_below: true, ..claim(None, real) };
        assert_eq!(Finding::of(&below, Some(&claim(None, real))), Finding::Differs);
        assert!(Finding::Agrees.confirms());
        // A figure with one open end still has an interval.
        let open = Claim { hi: None, ..self::claim(1.0, 2.0, "") };
        let far = self::claim(7.0, 8.0, "");
        assert_eq!(Finding::of(&open, Some(&far)), Finding::Overlaps);
    }

    #[test]
    fn a_target_is_met_or_missed_whatever_was_claimed() {
        let (met, missed) = (claim(1.0, 2.0, ">= 1"), claim(0.1, 0.2, ">= 1"));
        for (claimed, now, finding, confirms) in [
            (&met, &met, Finding::Met, true),
            (&met, &missed, Finding::NowMissed, false),
            (&missed, &missed, Finding::StillMissed, true),
            (&missed, &met, Finding::NowMet, true),
        ] {
            assert_eq!(Finding::of(claimed, Some(now)), finding);
            assert_eq!(finding.confirms(), confirms);
        }
        assert!(!check(&met, &[]).confirmed);
    }
}
