//! The alert rules and the dashboard of packaging/, compared with the metrics that unspin serves. A
//! metric or a cause that does not exist would leave a panel empty, and an alert silent.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use unspin_model::episode::{Cause, Wait};
use unspin_model::scheduler::{Limits, Stats};
use unspin_report::openmetrics::{scheduler, text};
use unspin_trace::totals::{Causes, Sum, Totals};

const WAITS: [Wait; 5] = [Wait::Spinlock, Wait::Mutex, Wait::Rwsem, Wait::Futex, Wait::Ipi];
const CAUSES: [Cause; 5] =
    [Cause::HolderOff, Cause::WaiterOff, Cause::IpiOff, Cause::HolderPreempted, Cause::Plain];

/// Returns all metrics that `unspin watch --listen --causes` and `unspin run --listen` can serve.
fn served() -> String {
    let sum = Sum { count: 1, ns: 1 };
    let each = || WAITS.iter().flat_map(|wait| CAUSES.map(|cause| ((*wait, cause), sum)));
    let totals = Totals {
        seconds: 1.0,
        offline: Vec::new(),
        off: vec![sum],
        steal_ns: vec![1],
        idle_ns: vec![1],
        looks: vec![sum],
        user_spin_ns: vec![1],
        causes: Some(Causes { spins: each().collect(), waits: each().collect(), lost: 1 }),
    };
    let limits = Some(Limits::default());
    let stats = Stats { vcpus: 1, used: 1, used_vcpus: vec![0], limits, ..Stats::default() };
    text(&totals) + &scheduler(&stats)
}

/// Returns the names of the samples, as Prometheus stores them.
fn names(served: &str) -> BTreeSet<String> {
    let samples = served.lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.split([' ', '{']).next().unwrap_or_default().to_owned()).collect()
}

/// Returns every word that looks like a metric of unspin.
fn mentioned(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("unspin_")).map(str::to_owned).collect()
}

/// Returns the values with which a text compares a label, such as those of `cause="..."`.
fn compared(text: &str, label: &str) -> BTreeSet<String> {
    let text = text.replace("\\\"", "\"");
    let after = format!("{label}=\"");
    let values = text.split(&after).skip(1).filter_map(|rest| rest.split('"').next());
    values.map(str::to_owned).collect()
}

fn packaged(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn rules_and_dashboard_name_metrics_that_exist() {
    let names = names(&served());
    assert!(names.len() > 30, "{names:?}");
    for (file, at_least) in [
        ("grafana/unspin.json", 25),
        ("prometheus/unspin.rules.yml", 8),
        ("prometheus/unspin.rules.test.yml", 8),
    ] {
        let text = packaged(file);
        let mentioned = mentioned(&text);
        assert!(mentioned.len() >= at_least, "{file}: {mentioned:?}");
        let unknown: Vec<_> = mentioned.difference(&names).collect();
        assert!(unknown.is_empty(), "{file}: nobody serves {unknown:?}");
        let causes: BTreeSet<_> = CAUSES.map(|cause| cause.name().to_owned()).into();
        let unknown: Vec<_> = compared(&text, "cause").difference(&causes).cloned().collect();
        assert!(unknown.is_empty(), "{file}: no cause is named {unknown:?}");
    }
}

#[test]
fn what_is_wrong_would_be_noticed() {
    let text = r#"rate(unspin_vcpu_of_seconds_total{cause=\"gone\"}[5m]) + unspin_run_vcpus"#;
    let unknown: Vec<_> = mentioned(text).difference(&names(&served())).cloned().collect();
    assert_eq!(unknown, ["unspin_vcpu_of_seconds_total"]);
    assert_eq!(compared(text, "cause"), BTreeSet::from(["gone".to_owned()]));
}

#[test]
fn every_metric_of_a_vcpu_is_on_the_dashboard() {
    let dashboard = mentioned(&packaged("grafana/unspin.json"));
    let missing: Vec<_> = names(&served())
        .into_iter()
        .filter(|name| name.starts_with("unspin_vcpu_") && !dashboard.contains(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
