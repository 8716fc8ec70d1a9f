//! Progress of long work, and of `make` and `ninja`, derived from the lines that they print.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::sync::Mutex;

/// The current state of long work.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// The current stage, such as `compile`.
    pub stage: String,
    /// Completed fraction of this stage, 0 to 1, if it is known.
    pub fraction: Option<f64>,
    /// The current step, such as the file being compiled.
    pub detail: String,
}

impl Progress {
    /// Returns the start of a stage whose progress cannot be measured.
    pub(super) fn stage(stage: &str, detail: impl Into<String>) -> Self {
        Self { stage: stage.into(), fraction: None, detail: detail.into() }
    }
}

/// Prints a warning to standard error, and each text only once, because one command may meet the
/// same fault many times. A stage of [`Progress`] would not suffice, because a terminal shows only
/// the last one.
pub(super) fn warn(text: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().is_ok_and(|mut said| said.insert(text.to_owned())) {
        // The caller's progress bar may have begun a line.
        let start = if std::io::stderr().is_terminal() { "\n" } else { "" };
        eprintln!("{start}warning: {text}");
    }
}

/// The value of the environment variable `NINJA_STATUS`, with which ninja prints the numbers of
/// finished steps and of all steps.
pub(super) const NINJA_STATUS: &str = "[%f/%t] ";

/// Counts the steps of a build, as a fraction of the steps of the last build.
pub(super) struct Steps {
    done: u64,
    expected: u64,
}

impl Steps {
    /// Starts a count that expects `expected` steps, at least one.
    pub(super) fn new(expected: u64) -> Self {
        Self { done: 0, expected: expected.max(1) }
    }

    /// Returns the number of steps so far.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// Returns the progress if `line` of make's output announces a step, such as `  CC
    /// mm/slub.o`.
    ///
    /// The fraction stays below 1, because a build may take more steps than the last one.
    pub(super) fn line(&mut self, line: &str) -> Option<Progress> {
        let (command, target) = step(line)?;
        self.done += 1;
        let fraction = (self.done as f64 / self.expected as f64).min(0.99);
        Some(Progress {
            stage: "compile".into(),
            fraction: Some(fraction),
            detail: format!("{command} {target}"),
        })
    }
}

/// Parses a line that ninja prints with [`NINJA_STATUS`].
pub(super) fn ninja(line: &str) -> Option<Progress> {
    let (count, detail) = line.strip_prefix('[')?.split_once("] ")?;
    let (done, total) = count.split_once('/')?;
    let (done, total): (u32, u32) = (done.parse().ok()?, total.parse().ok()?);
    let fraction = Some((f64::from(done) / f64::from(total.max(1))).min(0.99));
    Some(Progress { stage: "compile".into(), fraction, detail: detail.into() })
}

/// Splits a line that announces a step in kbuild's short form.
fn step(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))?;
    let (command, target) = rest.split_once(char::is_whitespace)?;
    command
        .chars()
        .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        .then_some(())?;
    Some((command, target.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_lines_of_kbuilds_short_form() {
        assert_eq!(step("  CC      mm/slub.o"), Some(("CC", "mm/slub.o")));
        assert_eq!(step("  HOSTCC  scripts/sorttable"), Some(("HOSTCC", "scripts/sorttable")));
        assert_eq!(step("mm/slub.c:12: warning: unused"), None);
        assert_eq!(step("    note: in expansion"), None);
        assert_eq!(step("  warning text"), None);
    }

    #[test]
    fn ninja_counts_its_steps() {
        let progress = ninja("[30/120] Compiling C object libqemu.a.p/cpus.c.o").unwrap();
        assert_eq!(progress.fraction, Some(0.25));
        assert_eq!(progress.detail, "Compiling C object libqemu.a.p/cpus.c.o");
        assert_eq!(ninja("[120/120] Linking").and_then(|p| p.fraction), Some(0.99));
        assert_eq!(ninja("ninja: build stopped."), None);
        assert_eq!(ninja("[x/y] text"), None);
    }

    #[test]
    fn a_longer_build_than_expected_is_not_done_early() {
        let mut steps = Steps::new(2);
        assert_eq!(steps.line("  CC a.o").and_then(|p| p.fraction), Some(0.5));
        for _ in 0..3 {
            steps.line("  CC b.o");
        }
        assert_eq!(steps.line("  LD vmlinux").and_then(|p| p.fraction), Some(0.99));
        assert_eq!(steps.done(), 5);
    }
}
