//! `unspin claims check`: measures again what the claims rest on.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use unspin_lab::experiment::Experiment;
use unspin_lab::interrupt;
use unspin_lab::run::{Bar, Finish, Options, execute};
use unspin_model::{Claim, Target};
use unspin_report::claims::figure;

use crate::lab::options;
use crate::out;

/// A claim beside what was measured now.
#[derive(Serialize)]
struct Checked {
    id: String,
    claimed: Option<f64>,
    measured: Option<f64>,
    /// Whether the two intervals overlap and the target is met as before.
    holds: bool,
    text: String,
}

/// Runs the experiments behind the claims that match, and compares.
pub fn run(
    claims: &[Claim],
    pattern: Option<&str>,
    out: &Path,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let (wanted, others): (Vec<&Claim>, Vec<&Claim>) =
        super::select(claims, pattern).into_iter().partition(|c| c.experiment.ends_with(".toml"));
    for claim in others {
        eprintln!("{}: not by an experiment; `{}` measures it", claim.id, claim.command);
    }
    let experiments: BTreeSet<&str> = wanted.iter().map(|c| c.experiment.as_str()).collect();
    interrupt::install()?;
    let mut measured = Vec::new();
    for file in experiments {
        let experiment = Experiment::load(file)?;
        let options = Options { out: out.to_owned(), fresh: true, ..options() };
        let (finish, folder) = execute(&experiment, &options, &mut Bar::new())?;
        eprintln!("{}: measured into {}", experiment.name, folder.display());
        if finish == Finish::Interrupted {
            eprintln!("interrupted; the same command goes on");
            return Ok(ExitCode::FAILURE);
        }
        measured.extend(super::supported(&folder)?);
    }
    let checked: Vec<Checked> = wanted.iter().map(|claim| check(claim, &measured)).collect();
    if json {
        out::line(serde_json::to_string_pretty(&checked)?)?;
    } else {
        for one in &checked {
            out::line(format_args!(
                "{} {}: {}",
                if one.holds { "holds" } else { "FAILS" },
                one.id,
                one.text
            ))?;
        }
    }
    let all = checked.iter().all(|one| one.holds);
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check(claim: &Claim, measured: &[Claim]) -> Checked {
    let now = measured.iter().find(|other| other.id == claim.id);
    let holds = now.is_some_and(|now| still_holds(claim, now));
    let found = now.map_or_else(|| "not measured".to_owned(), figure);
    Checked {
        id: claim.id.clone(),
        claimed: claim.value,
        measured: now.and_then(|now| now.value),
        holds,
        text: format!("claimed {}, now {found}", figure(claim)),
    }
}

/// A claim with a target holds while the target is met as before; one without
/// holds while the intervals overlap.
fn still_holds(claim: &Claim, now: &Claim) -> bool {
    if claim.target.parse::<Target>().is_ok() {
        return now.holds == claim.holds;
    }
    let interval = |c: &Claim| (c.lo.unwrap_or(f64::NEG_INFINITY), c.hi.unwrap_or(f64::INFINITY));
    let ((lo, hi), (now_lo, now_hi)) = (interval(claim), interval(now));
    lo <= now_hi && now_lo <= hi
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(lo: f64, hi: f64, target: &str, holds: bool) -> Claim {
        Claim {
            id: "x".into(),
            what: String::new(),
            value: Some((lo + hi) / 2.0),
            lo: Some(lo),
            hi: Some(hi),
            n: 10,
            unit: "x".into(),
            target: target.into(),
            holds,
            reason: String::new(),
            label: String::new(),
            experiment: String::new(),
            command: String::new(),
            date: String::new(),
            commit: String::new(),
        }
    }

    #[test]
    fn intervals_must_overlap_where_there_is_no_target() {
        assert!(still_holds(&claim(1.0, 2.0, "", true), &claim(1.9, 3.0, "", true)));
        assert!(!still_holds(&claim(1.0, 2.0, "", true), &claim(2.1, 3.0, "", true)));
    }

    #[test]
    fn a_target_decides_where_there_is_one() {
        assert!(still_holds(&claim(1.0, 2.0, ">= 1", true), &claim(5.0, 6.0, ">= 1", true)));
        assert!(!still_holds(&claim(1.0, 2.0, ">= 1", true), &claim(0.1, 0.2, ">= 1", false)));
        assert!(!check(&claim(1.0, 2.0, "", true), &[]).holds);
    }
}
