//! Sums as OpenMetrics text, which Prometheus reads.
//! Source: OpenMetrics 1.0, <https://prometheus.io/docs/specs/om/open_metrics_spec/>.

mod scheduler;

use std::collections::BTreeMap;
use std::fmt::Write;

use unspin_model::episode::{Cause, Wait};
use unspin_trace::totals::{Causes, Sum, Totals};

pub use scheduler::scheduler;

/// Content type of the output of [`text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns all totals, with the closing line that the format requires.
pub fn text(totals: &Totals) -> String {
    let mut out = String::new();
    counter(&mut out, "unspin_watched_seconds", Some("seconds"), "Time that the figures cover");
    sample(&mut out, "unspin_watched_seconds", "", totals.seconds);

    off(&mut out, totals);
    if !totals.idle_ns.is_empty() {
        let about = "Time that a vCPU was halted, with nothing to run";
        let idle = totals.idle_ns.iter().map(|ns| seconds(*ns));
        by_vcpu(&mut out, totals, "unspin_vcpu_idle_seconds", Some("seconds"), about, idle);
    }
    if !totals.looks.is_empty() {
        looks(&mut out, totals);
    }
    if !totals.user_spin_ns.is_empty() {
        let about = "Time that a vCPU spun in user space: a tick that finds a PAUSE near by counts \
                     the time since the one before";
        let spun = totals.user_spin_ns.iter().map(|ns| seconds(*ns));
        by_vcpu(&mut out, totals, "unspin_vcpu_user_spin_seconds", Some("seconds"), about, spun);
    }
    if let Some(sums) = &totals.causes {
        causes(&mut out, sums);
    }
    out + "# EOF\n"
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn off(out: &mut String, totals: &Totals) {
    let about = "Time that a vCPU wanted to run and was off its pCPU";
    let ns = totals.off.iter().map(|sum| seconds(sum.ns));
    by_vcpu(out, totals, "unspin_vcpu_off_seconds", Some("seconds"), about, ns);
    let count = totals.off.iter().map(|sum| sum.count as f64);
    by_vcpu(out, totals, "unspin_vcpu_off_intervals", None, "Times that a vCPU was off", count);
    if !totals.steal_ns.is_empty() {
        let about = "Steal time as the hypervisor reports it; 0 also if it reports none";
        let steal = totals.steal_ns.iter().map(|ns| seconds(*ns));
        by_vcpu(out, totals, "unspin_vcpu_steal_seconds", Some("seconds"), about, steal);
    }
}

fn looks(out: &mut String, totals: &Totals) {
    let about = "Time that a vCPU spun in the kernel: a tick that finds it so counts the time since \
                 the one before";
    let ns = totals.looks.iter().map(|sum| seconds(sum.ns));
    by_vcpu(out, totals, "unspin_vcpu_spin_seconds", Some("seconds"), about, ns);
    let count = totals.looks.iter().map(|sum| sum.count as f64);
    by_vcpu(out, totals, "unspin_vcpu_ticks", None, "Ticks of a vCPU that was not idle", count);
}

fn causes(out: &mut String, causes: &Causes) {
    let about = "vCPU time burned in long spins, by what was waited for and why it lasted";
    let counts = ("unspin_spins", "Long spins, by the same");
    by_cause(out, "unspin_spin_wasted_seconds", counts, about, &causes.spins);
    let about = "Time that threads slept for locks, by what was waited for and why it lasted";
    let counts = ("unspin_waits", "Waits of threads that slept, by the same");
    by_cause(out, "unspin_wait_blocked_seconds", counts, about, &causes.waits);
    counter(out, "unspin_lost_findings", None, "Findings that came too fast to be counted");
    sample(out, "unspin_lost_findings", "", causes.lost as f64);
}

/// Writes a value for each online vCPU; with the others, averages over all series would be wrong.
fn by_vcpu(
    out: &mut String,
    totals: &Totals,
    name: &str,
    unit: Option<&str>,
    about: &str,
    values: impl Iterator<Item = f64>,
) {
    counter(out, name, unit, about);
    let is_online = |vcpu: usize| totals.offline.binary_search(&(vcpu as u16)).is_err();
    for (vcpu, value) in values.enumerate().filter(|(vcpu, _)| is_online(*vcpu)) {
        sample(out, name, &format!("vcpu=\"{vcpu}\""), value);
    }
}

fn by_cause(
    out: &mut String,
    name: &str,
    (count, about_count): (&str, &str),
    about: &str,
    sums: &BTreeMap<(Wait, Cause), Sum>,
) {
    let labelled = || {
        sums.iter().map(|((wait, cause), sum)| {
            (format!("wait=\"{}\",cause=\"{}\"", wait.name(), cause.name()), sum)
        })
    };
    counter(out, name, Some("seconds"), about);
    for (labels, sum) in labelled() {
        sample(out, name, &labels, seconds(sum.ns));
    }
    counter(out, count, None, about_count);
    for (labels, sum) in labelled() {
        sample(out, count, &labels, sum.count as f64);
    }
}

fn counter(out: &mut String, name: &str, unit: Option<&str>, about: &str) {
    let _ = writeln!(out, "# TYPE {name} counter");
    if let Some(unit) = unit {
        let _ = writeln!(out, "# UNIT {name} {unit}");
    }
    let _ = writeln!(out, "# HELP {name} {about}.");
}

fn gauge(out: &mut String, name: &str, about: &str) {
    let _ = writeln!(out, "# TYPE {name} gauge\n# HELP {name} {about}.");
}

/// Writes a sample of a counter, whose name must end in `_total`.
fn sample(out: &mut String, name: &str, labels: &str, number: f64) {
    value(out, &format!("{name}_total"), labels, number);
}

fn value(out: &mut String, name: &str, labels: &str, number: f64) {
    let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let _ = writeln!(out, "{name}{labels} {number}");
}
