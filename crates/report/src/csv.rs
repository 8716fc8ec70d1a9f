//! Comma-separated values (RFC 4180, with line feeds), for spreadsheets and statistics: a row for
//! each run of an experiment, or for each event of a session. A cell is empty if its column does
//! not apply, or its value is not known.

use unspin_model::episode::Episode;
use unspin_model::session::FoundOff;
use unspin_model::{Better, Outcome, RunRecord, Session};
use unspin_trace::episodes::explain;

const RUN: [&str; 23] = [
    "run",
    "block",
    "attempt",
    "topology",
    "kernel",
    "boot_params",
    "scheduler",
    "workload",
    "outcome",
    "metric",
    "value",
    "unit",
    "better",
    "elapsed_s",
    "on_s",
    "off_s",
    "idle_s",
    "accel",
    "prices",
    "nested",
    "cvm",
    "started",
    "identity",
];

/// Columns of a session. `event` is `off`, `spin`, or `wait` for a wait that slept. Times are
/// nanoseconds of the guest's CLOCK_MONOTONIC.
const EVENT: [&str; 12] = [
    "event",
    "vcpu",
    "begin_ns",
    "end_ns",
    "begin_error_ns",
    "wait",
    "cause",
    "confidence",
    "wasted_ns",
    "waits_for_vcpu",
    "tid",
    "site",
];

/// Returns an experiment's runs and failed attempts, in the order of the file.
pub fn runs(records: &[RunRecord]) -> String {
    table(&RUN, records.iter().map(run))
}

fn run(record: &RunRecord) -> [String; RUN.len()] {
    let (cell, label, truth) = (&record.cell, &record.label, record.truth.as_ref());
    let outcome = match record.outcome {
        Outcome::Done { .. } => "done",
        Outcome::DidNotFinish { .. } => "did-not-finish",
        Outcome::Failed { .. } => "failed",
    };
    let better = match record.metric.better {
        Better::Higher => "higher",
        Better::Lower => "lower",
    };
    [
        record.run.to_string(),
        record.block.to_string(),
        record.attempt.to_string(),
        cell.topology.clone(),
        label.kernel.clone(),
        cell.boot_params.clone(),
        cell.scheduler.clone(),
        cell.workload.clone(),
        outcome.into(),
        record.metric.name.clone(),
        known(record.observation().flatten()),
        record.metric.unit.clone(),
        better.into(),
        record.elapsed_s.to_string(),
        known(truth.map(|truth| truth.on_s)),
        known(truth.map(|truth| truth.off_s)),
        known(truth.map(|truth| truth.idle_s)),
        known(label.accel),
        known(label.prices.as_deref()),
        label.nested.to_string(),
        known(label.cvm.as_deref()),
        record.started.clone(),
        known(record.identity.as_ref()),
    ]
}

/// Returns a session's off intervals, and its spins with their causes, in order of their begin.
pub fn session(session: &Session) -> String {
    let episodes = explain(session.spins.clone(), &session.offs);
    let offs = session.offs.iter().map(|off| ((off.start_ns, off.vcpu), self::off(off)));
    let spins =
        episodes.iter().map(|episode| ((episode.spin.begin_ns, episode.spin.vcpu), spin(episode)));
    let mut events: Vec<_> = offs.chain(spins).collect();
    events.sort_by_key(|(place, _)| *place);
    table(&EVENT, events.into_iter().map(|(_, event)| event))
}

fn off(off: &FoundOff) -> [String; EVENT.len()] {
    let mut cells = <[String; EVENT.len()]>::default();
    cells[0] = "off".into();
    cells[1] = off.vcpu.to_string();
    cells[2] = off.start_ns.to_string();
    cells[3] = off.end_ns.to_string();
    cells[4] = off.start_error_ns.to_string();
    cells
}

fn spin(episode: &Episode) -> [String; EVENT.len()] {
    let spin = &episode.spin;
    [
        if spin.asleep { "wait" } else { "spin" }.into(),
        spin.vcpu.to_string(),
        spin.begin_ns.to_string(),
        spin.end_ns.to_string(),
        String::new(),
        spin.wait.name().into(),
        episode.cause.name().into(),
        episode.confidence.to_string(),
        episode.wasted_ns.to_string(),
        known(episode.waits_for),
        spin.tid.to_string(),
        spin.site.clone(),
    ]
}

fn known(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

fn table<const N: usize>(heads: &[&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut text = heads.join(",") + "\n";
    for row in rows {
        text += &row.map(quoted).join(",");
        text.push('\n');
    }
    text
}

/// Returns a cell, in quotes if it contains a character that would end it.
fn quoted(cell: String) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell
    }
}

#[cfg(test)]
mod tests {
    use unspin_model::episode::{Owner, OwnerState, Spin, Wait};

    use super::*;

    fn spin(site: &str) -> Spin {
        let owner = Owner { tid: 7, vcpu: 1, state: OwnerState::Running, delay_ns: 0 };
        Spin {
            wait: Wait::Mutex,
            lock: 1,
            asleep: false,
            vcpu: 0,
            tid: 9,
            begin_ns: 2_000_000,
            end_ns: 8_000_000,
            halted_ns: 0,
            owner: Some(owner),
            before: None,
            site: site.into(),
        }
    }

    #[test]
    fn a_session_has_a_row_per_interval_with_its_cause() {
        let off = FoundOff {
            vcpu: 1,
            start_ns: 1_000_000,
            end_ns: 8_000_000,
            start_error_ns: 500,
            was_idle: false,
        };
        let (offs, spins) = (vec![off], vec![spin("a, \"quoted\" site")]);
        let text = session(&Session { vcpus: 2, offs, spins, ..Session::default() });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("event,vcpu,begin_ns,end_ns,begin_error_ns,wait,cause,"));
        assert_eq!(lines[1], "off,1,1000000,8000000,500,,,,,,,");
        assert!(lines[2].starts_with("spin,0,2000000,8000000,,mutex,holder-off,"), "{text}");
        assert!(lines[2].ends_with(",1,9,\"a, \"\"quoted\"\" site\""), "{text}");
    }

    #[test]
    fn runs_have_their_values_and_what_failed_has_none() {
        let line = include_str!("../../../results/truth/runs.jsonl").lines().next().unwrap();
        let done: RunRecord = serde_json::from_str(line).unwrap();
        let failed = RunRecord { outcome: Outcome::DidNotFinish { limit_s: 9.0 }, ..done.clone() };
        let value = done.observation().flatten().expect("it ended");
        let text = runs(&[done, failed]);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        let at = |name: &str| rows[0].iter().position(|head| *head == name).expect("a column");
        assert_eq!(rows[1][at("value")].parse(), Ok(value));
        assert_eq!((rows[2][at("outcome")], rows[2][at("value")]), ("did-not-finish", ""));
        assert_eq!(rows[1][at("accel")], "tcg");
    }
}
