use std::fs;

use unspin_model::{Accel, Outcome};

use super::super::identity::Plan;
use super::super::identity::tests::Bench;
use super::super::store::Store;
use super::super::store::tests::record;
use super::*;

/// An experiment of four runs in virtual time.
struct Folders {
    bench: Bench,
    experiment: Experiment,
    plan: Plan,
}

impl Folders {
    /// Makes the experiment, with its runs in `out` and the same runs in `published`.
    fn new() -> Folders {
        let bench = Bench::new();
        let mut experiment = bench.experiment("", "");
        experiment.force_accel(Accel::Vt).unwrap();
        let plan = bench.plan(&experiment, "k-1", Accel::Vt);
        let folders = Folders { bench, experiment, plan };
        folders.fill("published", "2026-01-01T00:00:00Z", &folders.plan, |_| {});
        folders.fill("out", "2026-02-02T00:00:00Z", &folders.plan, |_| {});
        folders
    }

    fn fill(&self, name: &str, started: &str, plan: &Plan, change: impl Fn(&mut RunRecord)) {
        let out = self.bench.path(name);
        let _ = fs::remove_dir_all(&out);
        let mut store = Store::open(&out, &self.experiment, plan, name).unwrap();
        for run in plan.names.keys() {
            let mut record = record(plan, *run, Outcome::Done { value: 1.0 });
            record.digest = Some(format!("digest of run {run}"));
            record.started = started.to_owned();
            record.label.host = started.to_owned();
            change(&mut record);
            store.append(&record).unwrap();
        }
    }

    /// Replaces the runs in `out` by those of another plan, or by runs with other results.
    fn run_again(&self, plan: &Plan, change: impl Fn(&mut RunRecord)) {
        self.fill("out", "2026-02-02T00:00:00Z", plan, change);
    }

    fn open(&self) -> Result<Option<Published>, LabError> {
        let out = self.bench.path("out");
        Published::open(&self.bench.path("published"), &self.experiment, &out)
    }

    /// Returns the verdict without the path of the test's folder.
    fn verdict(&self, runs: Selection) -> Result<String, String> {
        let published = self.open().unwrap().unwrap();
        let folder = self.bench.path("").display().to_string();
        let short = |text: String| text.replace(&folder, "");
        let comparison = published.compare(&self.bench.path("out"), runs).unwrap();
        comparison.verdict().map(short).map_err(|error| short(error.to_string()))
    }
}

#[test]
fn identical_runs_are_counted_whatever_machine_had_them() {
    let folders = Folders::new();
    let all = "4 of 4 runs are identical to those of published";
    assert_eq!(folders.verdict(Selection::All).unwrap(), all);
    let two = "2 of 2 runs are identical to those of published";
    assert_eq!(folders.verdict(Selection::Range(1, 2)).unwrap(), two);
}

#[test]
fn other_bytes_of_the_same_identity_are_an_error_with_run_and_difference() {
    let folders = Folders::new();
    folders.run_again(&folders.plan, |record| {
        if record.run == 2 {
            record.outcome = Outcome::Done { value: 2.5 };
            record.digest = Some("other bytes".to_owned());
            record.co_metrics.insert("user_s".to_owned(), 3.0);
        }
    });
    let error = folders.verdict(Selection::All).unwrap_err();
    let cell = &folders.plan.settings[&folders.plan.names[&2].setting].cell;
    let expected = format!(
        "1 of 4 runs differ from those of published, although everything that decides them is \
         the same:\n  run 2 ({cell}): digest digest of run 2 there, other bytes here; \
         value 1.0 there, 2.5 here; co_metrics.user_s none there, 3.0 here"
    );
    assert_eq!(error, expected);
    assert!(folders.verdict(Selection::Range(0, 1)).is_ok(), "the run was not to be compared");
}

#[test]
fn another_kernel_leaves_nothing_to_compare() {
    let folders = Folders::new();
    let plan = folders.bench.plan(&folders.experiment, "k-2", Accel::Vt);
    folders.run_again(&plan, |_| {});
    let verdict = folders.verdict(Selection::All).unwrap();
    assert!(verdict.starts_with("The published runs are of another kernel (1 "), "{verdict}");
    assert!(verdict.contains(" there, 2 ") && verdict.ends_with(" here): nothing to compare."));
    assert!(!verdict.contains("base image"), "the kernel's modules follow from it: {verdict}");
}

#[test]
fn other_programs_are_named() {
    let folders = Folders::new();
    fs::write(folders.bench.path("program"), "another").unwrap();
    let plan = folders.bench.plan(&folders.experiment, "k-1", Accel::Vt);
    folders.run_again(&plan, |_| {});
    let expected = "The published runs are of another program: nothing to compare.";
    assert_eq!(folders.verdict(Selection::All).unwrap(), expected);
}

#[test]
fn ingredients_have_words() {
    let folders = Folders::new();
    let one = folders.plan.settings.values().next().unwrap();
    let mut other = one.clone();
    other.virtual_time.as_mut().unwrap().qemu = "0123456789abcdef0123".to_owned();
    let commits = ["c1".to_owned(), "c2".to_owned()];
    let word = |path: &str| ingredient(path, one, &other, [&commits[0], &commits[1]]);
    let same_commit = ingredient("programs.unspin", one, &other, [&commits[0]; 2]);
    assert_eq!(word("programs.unspin").unwrap(), "another unspin (c1 there, c2 here)");
    assert_eq!(same_commit.unwrap(), "another build of unspin");
    assert_eq!(word("programs.guest").unwrap(), "another base image (busybox, modules)");
    let qemu = "another QEMU (q there, 0123456789abcdef here)";
    assert_eq!(word("virtual_time.qemu").unwrap(), qemu);
    assert_eq!(word("virtual_time.prices"), None);
    assert_eq!(word("machines.virtual_host").unwrap(), "another `machines.virtual_host`");
}

#[test]
fn runs_that_were_not_published_are_not_compared() {
    let folders = Folders::new();
    let more = Experiment { repeats: 3, ..folders.experiment.clone() };
    let plan = folders.bench.plan(&more, "k-1", Accel::Vt);
    folders.run_again(&plan, |_| {});
    let expected = "4 of 6 runs are identical to those of published. For the others, the \
                    published runs are of other seeds: nothing to compare.";
    assert_eq!(folders.verdict(Selection::All).unwrap(), expected);
    fs::write(folders.bench.path("published/runs.jsonl"), "").unwrap();
    folders.run_again(&folders.plan, |_| {});
    let expected = "The published runs are of an experiment that did not end: nothing to compare.";
    assert_eq!(folders.verdict(Selection::All).unwrap(), expected);
}

#[test]
fn a_run_without_a_result_is_not_identical() {
    let folders = Folders::new();
    folders.run_again(&folders.plan, |record| {
        if record.run == 0 {
            let kind = unspin_model::FailureKind::QemuDied;
            record.outcome = Outcome::Failed { kind, detail: String::new() };
        }
    });
    let expected = "3 of 4 runs are identical to those of published";
    assert_eq!(folders.verdict(Selection::All).unwrap(), expected);
}

#[test]
fn a_folder_that_is_missing_is_none_and_one_of_something_else_an_error() {
    let folders = Folders::new();
    fs::remove_dir_all(folders.bench.path("published")).unwrap();
    assert!(folders.open().unwrap().is_none());
    fs::create_dir(folders.bench.path("published")).unwrap();
    let error = folders.open().unwrap_err().to_string();
    assert!(error.contains("this is not an output folder of `unspin lab run`"), "{error}");
}

#[test]
fn copies_of_the_published_runs_prove_nothing() {
    let folders = Folders::new();
    let mut store =
        Store::open(&folders.bench.path("new"), &folders.experiment, &folders.plan, "").unwrap();
    store.reuse(&folders.bench.path("published"), &folders.plan).unwrap();
    let open = |name| {
        Published::open(
            &folders.bench.path("published"),
            &folders.experiment,
            &folders.bench.path(name),
        )
    };
    for name in ["new", "published"] {
        let error = open(name).unwrap_err();
        assert!(matches!(error, LabError::Topology(_)), "a usage error");
        let text = error.to_string();
        assert!(text.contains("/runs.jsonl: holds 4 of the very runs of "), "{text}");
    }
    assert!(open("none").unwrap().is_some());
}

#[test]
fn real_time_is_refused() {
    let mut folders = Folders::new();
    folders.experiment.force_accel(Accel::Tcg).unwrap();
    let error = folders.open().unwrap_err();
    assert!(matches!(error, LabError::Topology(_)), "a usage error");
    let text = error.to_string();
    assert!(text.contains("x.toml: --verify compares runs in virtual time, and topology `t`"));
}
