//! Reads the results of plans.

use std::collections::BTreeMap;
use std::path::Path;

use unspin_model::{FailureKind, Outcome};

use crate::run::{LabError, load};

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Judged {
    /// The run passed. The value is the longest wait of a task in seconds.
    Passed(f64),
    /// The run failed.
    Failed {
        /// Description of the failure.
        what: String,
        /// Messages of the guest.
        detail: String,
    },
    /// The host failed, so the run shows nothing about the guest scheduler. The text is the reason.
    NoResult(String),
}

/// The runs of each plan, by the plan's name.
pub type Found = BTreeMap<String, Vec<Judged>>;

impl Judged {
    /// Returns whether the run failed with this description.
    pub fn fails_so(&self, what: &str) -> bool {
        matches!(self, Judged::Failed { what: why, .. } if why == what)
    }

    /// Returns whether the run passed or failed.
    pub fn is_result(&self) -> bool {
        !matches!(self, Judged::NoResult(_))
    }

    fn of(outcome: &Outcome) -> Judged {
        use FailureKind::{OutOfMemory, QemuDied, TooSlow, Unavailable};
        match outcome {
            Outcome::Done { value } => Judged::Passed(*value),
            Outcome::DidNotFinish { limit_s } => {
                Judged::Failed { what: format!("no end within {limit_s} s"), detail: String::new() }
            }
            Outcome::Failed {
                kind: kind @ (QemuDied | Unavailable | OutOfMemory | TooSlow),
                detail,
            } => {
                let why = detail.lines().next().unwrap_or_default();
                Judged::NoResult(format!("{kind:?}: {why}"))
            }
            Outcome::Failed { kind, detail } => {
                let said = detail.lines().find_map(|line| line.strip_prefix("failed: "));
                let what = said.map_or_else(|| format!("{kind:?}"), str::to_owned);
                Judged::Failed { what, detail: detail.clone() }
            }
        }
    }
}

/// Reads the results in an output folder.
pub fn found(out: &Path) -> Result<Found, LabError> {
    let records = load(out)?.records;
    let attempts = records.iter().map(|one| (one.run, one.cell.workload.as_str(), &one.outcome));
    Ok(last_of_each(attempts))
}

/// Groups the outcomes by plan. Each attempt is a run number, a plan and an outcome. Every command
/// retries the runs that failed, so only the last attempt of a run counts.
fn last_of_each<'a>(attempts: impl Iterator<Item = (u64, &'a str, &'a Outcome)>) -> Found {
    let last: BTreeMap<u64, (&str, &Outcome)> =
        attempts.map(|(run, plan, outcome)| (run, (plan, outcome))).collect();
    let mut found = Found::new();
    for (plan, outcome) in last.into_values() {
        found.entry(plan.to_owned()).or_default().push(Judged::of(outcome));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(kind: FailureKind, detail: &str) -> Outcome {
        Outcome::Failed { kind, detail: detail.into() }
    }

    #[test]
    fn the_last_attempt_at_each_run_counts() {
        let waited = failed(FailureKind::WorkloadFailed, "exit code 1\nfailed: it waited\n");
        let passed = Outcome::Done { value: 0.5 };
        let attempts = [
            (0, "seed-0", &waited),
            (1, "seed-1", &passed),
            (0, "seed-0", &waited),
            (0, "seed-0", &passed),
            (2, "seed-0", &waited),
        ];
        let found = last_of_each(attempts.into_iter());
        assert_eq!(found["seed-1"], [Judged::Passed(0.5)]);
        let [first, second] = &found["seed-0"][..] else { panic!("two runs: {found:?}") };
        assert_eq!(*first, Judged::Passed(0.5));
        assert!(second.fails_so("it waited") && second.is_result());
    }

    #[test]
    fn a_host_that_fails_is_not_a_failure_of_the_scheduler() {
        use FailureKind::{OutOfMemory, QemuDied, TooSlow, Unavailable};
        for kind in [QemuDied, Unavailable, OutOfMemory, TooSlow] {
            let judged = Judged::of(&failed(kind, "QEMU: signal 9\nconsole:\n"));
            assert_eq!(judged, Judged::NoResult(format!("{kind:?}: QEMU: signal 9")));
            assert!(!judged.is_result() && !judged.fails_so(&format!("{kind:?}")));
        }
        let panicked = Judged::of(&failed(FailureKind::GuestPanic, "Kernel panic"));
        assert!(panicked.fails_so("GuestPanic"));
        assert!(Judged::of(&Outcome::DidNotFinish { limit_s: 9.0 }).fails_so("no end within 9 s"));
    }
}
