//! Sums as OpenMetrics text, which Prometheus reads.
//! Source: OpenMetrics 1.0, <https://prometheus.io/docs/specs/om/open_metrics_spec/>.

mod scheduler;

use std::collections::BTreeMap;
use std::fmt::Write;

use unspin_model::episode::{Cause, Wait};
use unspin_trace::totals::{Sum, Totals};

pub use scheduler::scheduler;

/// The content type of [`text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All of it, with the closing line that the format asks for.
pub fn text(totals: &Totals) -> String {
    let mut out = String::new();
    let seconds = |ns: u64| ns as f64 / 1e9;
    counter(&mut out, "unspin_watched_seconds", Some("seconds"), "Time that the figures cover");
    sample(&mut out, "unspin_watched_seconds", "", totals.seconds);

    let offs = || (0..).zip(&totals.off).map(|(vcpu, sum)| (format!("vcpu=\"{vcpu}\""), sum));
    let about = "Time that a vCPU wanted to run and was off its pCPU";
    counter(&mut out, "unspin_vcpu_off_seconds", Some("seconds"), about);
    for (vcpu, sum) in offs() {
        sample(&mut out, "unspin_vcpu_off_seconds", &vcpu, seconds(sum.ns));
    }
    counter(&mut out, "unspin_vcpu_off_intervals", None, "Times that a vCPU was off");
    for (vcpu, sum) in offs() {
        sample(&mut out, "unspin_vcpu_off_intervals", &vcpu, sum.count as f64);
    }

    let about = "vCPU time burned in long spins, by what was waited for and why it lasted";
    by_cause(&mut out, "unspin_spin_wasted_seconds", "unspin_spins", about, &totals.spins);
    let about = "Time that threads slept for locks, by what was waited for and why it lasted";
    by_cause(&mut out, "unspin_wait_blocked_seconds", "unspin_waits", about, &totals.waits);
    counter(&mut out, "unspin_lost_findings", None, "Findings that came too fast to be counted");
    sample(&mut out, "unspin_lost_findings", "", totals.lost as f64);
    out + "# EOF\n"
}

fn by_cause(
    out: &mut String,
    name: &str,
    count: &str,
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
        sample(out, name, &labels, sum.ns as f64 / 1e9);
    }
    counter(out, count, None, "How many that were");
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

/// A counter's samples have names that end in `_total`.
fn sample(out: &mut String, name: &str, labels: &str, number: f64) {
    value(out, &format!("{name}_total"), labels, number);
}

fn value(out: &mut String, name: &str, labels: &str, number: f64) {
    let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let _ = writeln!(out, "{name}{labels} {number}");
}
