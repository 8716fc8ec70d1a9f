//! The record's format: a golden record and its listing, hostile bytes, and the true states that a
//! record gives.

use unspin_model::VcpuState;
use unspin_trace::virtual_time::{self, Answer, Clock, Event, Kind, Mark, verdict_name};

const GOLDEN: &[u8] = include_bytes!("../data/virtual-time/record.bin");
const LISTING: &str = include_str!("../data/virtual-time/record.txt");

fn header(version: u32, pcpus: u32, vcpus: u32, entities: u32) -> Vec<u8> {
    let mut bytes = b"UNSPINVT".to_vec();
    for word in [version, pcpus, vcpus, entities] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(1_000_u64.to_le_bytes());
    bytes
}

fn event(t_ns: u64, kind: Kind, pcpu: Option<u8>, entity: u16) -> Event {
    Event { t_ns, kind, pcpu, entity, offset: 0 }
}

/// Two vCPUs of the guest and one of a neighbour share a pCPU.
fn golden() -> Vec<u8> {
    let events = [
        event(0, Kind::On, Some(0), 0),
        event(1_000, Kind::Mark(Mark::Begin), Some(0), 0),
        event(1_500, Kind::Exit { reason: 4, price_ns: 1_200 }, Some(0), 0),
        event(2_000, Kind::Wake, None, 1),
        event(3_000, Kind::PauseLoop { target: Some(1), verdict: 11 }, Some(0), 0),
        event(3_000, Kind::Off, Some(0), 0),
        event(3_000, Kind::On, Some(0), 1),
        event(4_000, Kind::Idle, Some(0), 1),
        event(4_000, Kind::Wake, None, 2),
        event(4_000, Kind::On, Some(0), 2),
        event(6_000, Kind::Idle, Some(0), 2),
        event(6_000, Kind::Steal(true), Some(0), 0),
        event(7_000, Kind::Steal(false), Some(0), 0),
        event(7_000, Kind::On, Some(0), 0),
        event(9_000, Kind::Mark(Mark::End), Some(0), 0),
        event(9_500, Kind::Mark(Mark::Done), Some(0), 0),
        event(10_000, Kind::End, None, 0xffff),
        event(1, Kind::Count { reason: 4 }, None, 0),
    ];
    events.iter().fold(header(1, 1, 2, 3), |mut bytes, event| {
        bytes.extend(event.to_bytes());
        bytes
    })
}

fn error_of(bytes: &[u8]) -> String {
    virtual_time::read_from(bytes, "record.bin").unwrap_err().to_string()
}

#[test]
fn the_golden_record_reads_as_its_listing() {
    assert_eq!(golden(), GOLDEN, "the format changed: give it a new version");
    let lines = GOLDEN[32..].chunks(16).enumerate().map(|(index, bytes)| {
        let bytes = bytes.try_into().expect("whole events");
        let event = Event::from_bytes(bytes, 32 + 16 * index as u64).expect("a known kind");
        format!("{event}\n")
    });
    assert_eq!(lines.collect::<String>(), LISTING);
    let record = virtual_time::read_from(GOLDEN, "record.bin").unwrap();
    assert_eq!((record.pcpus, record.vcpus, record.entities, record.end_ns), (1, 2, 3, 10_000));
    assert_eq!(record.events.len(), 14);
    assert_eq!((record.exits[&4].count, record.exits[&4].price_ns), (1, 1_200));
    assert_eq!((record.counted[&4], record.quantum_ns), (1, 1_000));
    assert_eq!(record.job_exits, record.exits, "the only one was the job's");
    assert_eq!(record.job_pause_loops[&11], 1);
}

#[test]
fn yields_are_counted_while_the_job_runs() {
    let asks = |t_ns, verdict| event(t_ns, Kind::Yield { target: 1, verdict }, Some(0), 0);
    let events = [
        event(0, Kind::On, Some(0), 0),
        asks(500, 11),
        event(1_000, Kind::Mark(Mark::Begin), Some(0), 0),
        asks(2_000, 11),
        asks(3_000, 10),
        asks(4_000, 11),
        event(9_000, Kind::Mark(Mark::End), Some(0), 0),
        asks(9_500, 11),
        event(10_000, Kind::End, None, 0xffff),
    ];
    let bytes = events.iter().fold(header(1, 1, 2, 2), |mut bytes, event| {
        bytes.extend(event.to_bytes());
        bytes
    });
    let record = virtual_time::read_from(&bytes[..], "record.bin").unwrap();
    assert_eq!(record.job_yields, [(11, 2), (10, 1)].into());
}

#[test]
fn verdicts_have_the_names_of_the_policys_reasons() {
    let header = include_str!("../../../../policy/host/boost.h");
    let (_, reasons) = header.split_once("enum boost_reason {").expect("the reasons");
    let (reasons, _) = reasons.split_once("};").expect("their end");
    let reasons = reasons.lines().filter_map(|line| line.trim().strip_prefix("BOOST_"));
    let named = reasons.map(|line| line.split([',', ' ']).next().unwrap_or_default());
    let named = named.map(|name| name.to_lowercase().replace('_', "-").replace("yes", "yielded"));
    let all = (1..).map(verdict_name).take_while(|name| name.parse::<u8>().is_err());
    assert_eq!(named.collect::<Vec<_>>(), all.collect::<Vec<_>>());
    assert_eq!([0, 200].map(verdict_name), ["unrecorded", "200"]);
}

/// Returns a record of a job in which vCPU 0 has series of consecutive pause-loop exits,
/// each followed by a halt.
fn with_pauses(in_a_row: &[u32]) -> virtual_time::Record {
    let mut events = vec![event(1_000, Kind::Mark(Mark::Begin), Some(0), 0)];
    for n in in_a_row {
        for _ in 0..*n {
            events.push(event(2_000, Kind::Exit { reason: 7, price_ns: 1_000 }, Some(0), 0));
            events.push(event(2_000, Kind::PauseLoop { target: None, verdict: 1 }, Some(0), 0));
            // Another vCPU's exits do not end a storm.
            events.push(event(2_000, Kind::Exit { reason: 0, price_ns: 1_000 }, Some(0), 1));
        }
        events.push(event(3_000, Kind::Exit { reason: 0, price_ns: 1_000 }, Some(0), 0));
    }
    events.push(event(9_000, Kind::Mark(Mark::End), Some(0), 0));
    events.push(event(10_000, Kind::End, None, 0xffff));
    let bytes = events.iter().fold(header(1, 1, 2, 3), |mut bytes, event| {
        bytes.extend(event.to_bytes());
        bytes
    });
    virtual_time::read_from(&bytes[..], "record.bin").unwrap()
}

#[test]
fn a_storm_is_more_than_a_hundred_pause_exits_of_one_vcpu_in_a_row() {
    assert_eq!(with_pauses(&[100, 100]).job_storm_exits, 0);
    assert_eq!(with_pauses(&[101]).job_storm_exits, 101);
    assert_eq!(with_pauses(&[150, 20, 300]).job_storm_exits, 450);
}

#[test]
fn preemptions_of_vcpus_are_counted_between_the_marks_of_the_job() {
    let events = [
        event(0, Kind::On, Some(0), 0),
        event(500, Kind::Critical, Some(0), 0),
        event(500, Kind::Off, Some(0), 0),
        event(500, Kind::On, Some(0), 1),
        event(1_000, Kind::Mark(Mark::Begin), Some(0), 1),
        event(2_000, Kind::Critical, Some(0), 1),
        event(2_000, Kind::Off, Some(0), 1),
        event(2_000, Kind::On, Some(0), 2),
        event(3_000, Kind::Off, Some(0), 2),
        event(3_000, Kind::On, Some(0), 0),
        event(4_000, Kind::Off, Some(0), 0),
        event(4_000, Kind::On, Some(0), 1),
        event(9_000, Kind::Mark(Mark::End), Some(0), 1),
        event(10_000, Kind::End, None, 0xffff),
    ];
    let bytes = events.iter().fold(header(1, 1, 2, 3), |mut bytes, event| {
        bytes.extend(event.to_bytes());
        bytes
    });
    let record = virtual_time::read_from(&bytes[..], "record.bin").unwrap();
    assert_eq!(record.job_preemptions, [2, 1], "not the neighbour, and not before the job");
}

#[test]
fn answers_to_reflected_pause_loops_are_counted_by_vcpu_and_content() {
    let answer = |owner| Kind::Answer(Answer { wait: 1, outcome: 0, owner, before: None });
    let events = [
        event(500, Kind::Reflect, Some(0), 0),
        event(1_000, Kind::Mark(Mark::Begin), Some(0), 1),
        event(2_000, Kind::Reflect, Some(0), 0),
        event(2_100, answer(Some(1)), Some(0), 0),
        event(3_000, Kind::Reflect, Some(0), 1),
        event(3_100, answer(None), Some(0), 1),
        event(9_000, Kind::Mark(Mark::End), Some(0), 1),
        event(10_000, Kind::End, None, 0xffff),
    ];
    let bytes = events.iter().fold(header(1, 1, 2, 2), |mut bytes, event| {
        bytes.extend(event.to_bytes());
        bytes
    });
    let record = virtual_time::read_from(&bytes[..], "record.bin").unwrap();
    assert_eq!(record.job_reflections, 2, "one was before the job");
    let answers: Vec<_> = record.job_answers.iter().map(|((v, a), n)| (*v, a.owner, *n)).collect();
    assert_eq!(answers, [(0, Some(1), 1), (1, None, 1)]);
    assert_eq!(record.events.len(), 2, "they change no state");
}

#[test]
fn the_truth_is_exact_and_in_guest_time() {
    let record = virtual_time::read_from(GOLDEN, "record.bin").unwrap();
    let window = (record.mark_ns(Mark::Begin).unwrap(), record.mark_ns(Mark::End).unwrap());
    assert_eq!(window, (1_000, 9_000));
    let clock = Clock { begin: (1_000, 501_000), end: (9_000, 509_000), error_ns: 7 };
    let truth = record.truth("subject", window, &clock);
    let states: Vec<_> = truth.recording.events.iter().map(|e| (e.t_ns, e.vcpu, e.state)).collect();
    use VcpuState::{Idle, Off, On};
    let expected = [
        (501_000, 0, On),
        (501_000, 1, Idle),
        (502_000, 1, Off),
        (503_000, 0, Off),
        (503_000, 1, On),
        (504_000, 1, Idle),
        (507_000, 0, On),
    ];
    assert_eq!(states, expected);
    let sums = &truth.summary;
    let sum_ns = |seconds: f64| (seconds * 1e9).round() as u64;
    assert_eq!([sums.on_s, sums.off_s, sums.idle_s].map(sum_ns), [5_000, 5_000, 6_000]);
    assert_eq!((sums.off_count, sums.off_us), (2, Some([4.0, 4.0, 4.0])));
    assert_eq!(sum_ns(truth.neighbours_on_s[0]), 2_000);
    assert_eq!(sum_ns(truth.pcpus_busy_s[0]), 7_000);
}

#[test]
fn hostile_bytes_are_errors_with_their_place() {
    let good = golden();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let after_end = [&good[..], &good[32..48]].concat();
    let cases: [(Vec<u8>, &str); 12] = [
        (Vec::new(), "byte 0: shorter than a header"),
        (good[..31].to_vec(), "byte 0: shorter than a header"),
        (with(0, b'X'), "byte 0: not a record of virtual time"),
        (with(8, 2), "byte 8: version 2; this unspin reads version 1"),
        (with(12, 0), "byte 12: 0 pCPUs"),
        (with(16, 9), "byte 16: 9 vCPUs among 3 entities"),
        (with(32 + 8, 77), "byte 32: 77 is not a kind of event"),
        (with(32 + 9, 5), "byte 32: pCPU 5 of 1"),
        (with(48 + 11, 1), "byte 48: entity 256 of 3"),
        (with(112 + 7, 1), "byte 240: entity 0: time goes back"),
        (good[..good.len() - 32].to_vec(), "no end event"),
        (after_end, "an event after the end"),
    ];
    for (bytes, expected) in cases {
        let message = error_of(&bytes);
        assert!(message.contains(expected), "{expected}: {message}");
    }
    let cut = error_of(&good[..good.len() - 3]);
    assert!(cut.contains("13 bytes of an event of 16"), "{cut}");
    assert!(error_of(&header(1, 1, 1, 1 << 20)).contains("entities"), "a count too large");
}

/// Writes the golden record again. Run it by name after a change of the format.
#[test]
#[ignore = "writes tests/data/virtual-time"]
fn write_the_golden_record() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/virtual-time");
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(format!("{folder}/record.bin"), golden()).unwrap();
    let record = golden();
    let lines = record[32..]
        .chunks(16)
        .map(|bytes| format!("{}\n", Event::from_bytes(bytes.try_into().unwrap(), 0).unwrap()));
    std::fs::write(format!("{folder}/record.txt"), lines.collect::<String>()).unwrap();
}
