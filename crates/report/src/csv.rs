//! Comma-separated values, for spreadsheets and statistics: a row per run of an experiment, a row
//! per event of a session. A cell is empty where something does not apply or is not known.

use csv::Writer;
use serde::Serialize;
use unspin_model::episode::Episode;
use unspin_model::session::FoundOff;
use unspin_model::{Better, Outcome, RunRecord, Session};
use unspin_trace::episodes::explain;

/// A run, or a failed attempt at one.
#[derive(Serialize)]
struct Run<'a> {
    run: u64,
    block: u32,
    attempt: u32,
    topology: &'a str,
    kernel: &'a str,
    boot_params: &'a str,
    scheduler: &'a str,
    workload: &'a str,
    outcome: &'static str,
    metric: &'a str,
    value: Option<f64>,
    unit: &'a str,
    better: &'static str,
    elapsed_s: f64,
    on_s: Option<f64>,
    off_s: Option<f64>,
    idle_s: Option<f64>,
    accel: &'static str,
    prices: Option<&'a str>,
    nested: bool,
    cvm: Option<&'a str>,
    started: &'a str,
    identity: Option<String>,
}

impl<'a> Run<'a> {
    fn of(record: &'a RunRecord) -> Run<'a> {
        let (cell, label, truth) = (&record.cell, &record.label, record.truth.as_ref());
        Run {
            run: record.run,
            block: record.block,
            attempt: record.attempt,
            topology: &cell.topology,
            kernel: &label.kernel,
            boot_params: &cell.boot_params,
            scheduler: &cell.scheduler,
            workload: &cell.workload,
            outcome: match record.outcome {
                Outcome::Done { .. } => "done",
                Outcome::DidNotFinish { .. } => "did-not-finish",
                Outcome::Failed { .. } => "failed",
            },
            metric: &record.metric.name,
            value: record.observation().flatten(),
            unit: &record.metric.unit,
            better: match record.metric.better {
                Better::Higher => "higher",
                Better::Lower => "lower",
            },
            elapsed_s: record.elapsed_s,
            on_s: truth.map(|truth| truth.on_s),
            off_s: truth.map(|truth| truth.off_s),
            idle_s: truth.map(|truth| truth.idle_s),
            accel: label.accel.map_or("", |accel| accel.as_str()),
            prices: label.prices.as_deref(),
            nested: label.nested,
            cvm: label.cvm.as_deref(),
            started: &record.started,
            identity: record.identity.as_ref().map(ToString::to_string),
        }
    }
}

/// An interval of a session: times are nanoseconds of the guest's CLOCK_MONOTONIC.
#[derive(Default, Serialize)]
struct Event<'a> {
    /// `off`, `spin`, or `wait` for one that slept.
    event: &'static str,
    vcpu: u16,
    begin_ns: u64,
    end_ns: u64,
    begin_error_ns: Option<u64>,
    wait: Option<&'static str>,
    cause: Option<&'static str>,
    confidence: Option<f64>,
    wasted_ns: Option<u64>,
    waits_for_vcpu: Option<u16>,
    tid: Option<u32>,
    site: Option<&'a str>,
}

impl<'a> Event<'a> {
    fn off(off: &FoundOff) -> Event<'a> {
        Event {
            event: "off",
            vcpu: off.vcpu,
            begin_ns: off.start_ns,
            end_ns: off.end_ns,
            begin_error_ns: Some(off.start_error_ns),
            ..Event::default()
        }
    }

    fn spin(episode: &'a Episode) -> Event<'a> {
        let spin = &episode.spin;
        Event {
            event: if spin.asleep { "wait" } else { "spin" },
            vcpu: spin.vcpu,
            begin_ns: spin.begin_ns,
            end_ns: spin.end_ns,
            begin_error_ns: None,
            wait: Some(spin.wait.name()),
            cause: Some(episode.cause.name()),
            confidence: Some(episode.confidence),
            wasted_ns: Some(episode.wasted_ns),
            waits_for_vcpu: episode.waits_for,
            tid: Some(spin.tid),
            site: Some(spin.site.as_str()),
        }
    }
}

/// An experiment's runs and failed attempts, in the order of the file.
///
/// # Errors
/// Those of [`csv::Error`]; writing to memory gives none.
pub fn runs(records: &[RunRecord]) -> Result<String, csv::Error> {
    rows(records.iter().map(Run::of))
}

/// A session's off intervals and spins, the latter with their causes, by the time they began.
///
/// # Errors
/// Those of [`csv::Error`]; writing to memory gives none.
pub fn session(session: &Session) -> Result<String, csv::Error> {
    let episodes = explain(session.spins.clone(), &session.offs);
    let mut events: Vec<Event> =
        session.offs.iter().map(Event::off).chain(episodes.iter().map(Event::spin)).collect();
    events.sort_by_key(|event| (event.begin_ns, event.vcpu));
    rows(events)
}

fn rows(rows: impl IntoIterator<Item = impl Serialize>) -> Result<String, csv::Error> {
    let mut writer = Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
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
        let text = session(&Session { vcpus: 2, offs, spins, ..Session::default() }).unwrap();
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
        let text = runs(&[done, failed]).unwrap();
        let rows: Vec<csv::StringRecord> =
            csv::Reader::from_reader(text.as_bytes()).records().map(Result::unwrap).collect();
        let heads = csv::Reader::from_reader(text.as_bytes()).headers().unwrap().clone();
        let at = |name: &str| heads.iter().position(|head| head == name).unwrap();
        assert_eq!(rows[0][at("value")].parse(), Ok(value));
        assert_eq!((&rows[1][at("outcome")], &rows[1][at("value")]), ("did-not-finish", ""));
        assert_eq!(&rows[0][at("accel")], "tcg");
    }
}
