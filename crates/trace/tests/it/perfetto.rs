//! The Perfetto export, checked byte by byte and by field number with a decoder
//! that shares no code with the export.

use unspin_model::episode::{Spin, Taken, Wait};
use unspin_model::session::FoundOff;
use unspin_model::{Recording, Session, VcpuEvent, VcpuState};
use unspin_trace::perfetto;

/// Two vCPUs: the first one goes off, the second one is halted throughout.
fn tiny() -> Recording {
    let event = |t_ns, vcpu, state| VcpuEvent { t_ns, vcpu, state };
    Recording {
        vm: "subject".into(),
        vcpus: 2,
        start_ns: 1000,
        end_ns: 5000,
        alignment_error_ns: 40,
        lost: 3,
        events: vec![
            event(1000, 0, VcpuState::On),
            event(1000, 1, VcpuState::Idle),
            event(2000, 0, VcpuState::Off),
        ],
    }
}

fn bytes(recordings: &[Recording]) -> Vec<u8> {
    let mut bytes = Vec::new();
    perfetto::write(&mut bytes, recordings).unwrap();
    bytes
}

/// A field of a protobuf message.
#[derive(Debug, Clone, PartialEq)]
enum Field<'a> {
    Varint(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

fn varint(input: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = input[0];
        *input = &input[1..];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("varint without end");
}

/// Returns the number and value of each field, in order of the bytes.
fn fields(mut input: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut out = Vec::new();
    while !input.is_empty() {
        let key = varint(&mut input);
        let value = match key & 7 {
            0 => Field::Varint(varint(&mut input)),
            2 => {
                let (bytes, rest) = {
                    let len = varint(&mut input) as usize;
                    input.split_at(len)
                };
                input = rest;
                Field::Bytes(bytes)
            }
            1 => {
                let (bytes, rest) = input.split_at(8);
                input = rest;
                Field::Fixed(u64::from_le_bytes(bytes.try_into().unwrap()))
            }
            wire => panic!("wire type {wire}"),
        };
        out.push((key >> 3, value));
    }
    out
}

/// Returns the fields as text, `number: value`, nested if `nested` has the path.
fn dump(input: &[u8], path: &str, out: &mut String) {
    for (number, value) in fields(input) {
        let path = if path.is_empty() { number.to_string() } else { format!("{path}.{number}") };
        match value {
            Field::Varint(v) | Field::Fixed(v) => out.push_str(&format!("{path}={v} ")),
            Field::Bytes(b) if NESTED.contains(&path.as_str()) => dump(b, &path, out),
            Field::Bytes(b) => {
                out.push_str(&format!("{path}={:?} ", std::str::from_utf8(b).unwrap()));
            }
        }
    }
}

/// Paths of the fields that are messages: clock snapshot with its clocks, track
/// event, track descriptor with its process.
const NESTED: [&str; 5] = ["6", "6.1", "11", "60", "60.3"];

fn packets(trace: &[u8]) -> Vec<String> {
    let packet = |(number, value)| {
        assert_eq!(number, 1, "Trace.packet is field 1");
        let Field::Bytes(bytes) = value else { panic!("a packet is a message") };
        let mut text = String::new();
        dump(bytes, "", &mut text);
        text.trim_end().to_string()
    };
    fields(trace).into_iter().map(packet).collect()
}

#[test]
fn packets_carry_the_fields_of_perfettos_schema() {
    let trace = bytes(&[tiny()]);
    let (vm, vcpu0, vcpu1) = (1u64 << 32, (1u64 << 32) + 1, (1u64 << 32) + 2);
    let begin = |t, track, name| {
        format!("11.9=1 11.11={track} 11.22=\"vcpu\" 11.23={name:?} 8={t} 10=1 58=3")
    };
    let end = |t, track| format!("11.9=2 11.11={track} 8={t} 10=1 58=3");
    let about = "vCPU states as the host saw them; times within 40 ns; 3 events lost";
    assert_eq!(
        packets(&trace),
        [
            "6.1.1=3 6.1.2=1000 6.1.1=6 6.1.2=1000 6.2=3 10=1".to_string(),
            format!("60.1={vm} 60.3.1=1 60.3.6=\"subject\" 60.11=3 60.14={about:?} 10=1"),
            format!("60.1={vcpu0} 60.2=\"vCPU 0\" 60.5={vm} 60.12=0 10=1"),
            format!("60.1={vcpu1} 60.2=\"vCPU 1\" 60.5={vm} 60.12=1 10=1"),
            begin(1000, vcpu0, "on"),
            end(2000, vcpu0),
            begin(2000, vcpu0, "off"),
            end(5000, vcpu0),
            begin(1000, vcpu1, "idle"),
            end(5000, vcpu1),
        ]
    );
}

#[test]
fn a_slice_is_these_bytes() {
    let trace = bytes(&[tiny()]);
    #[rustfmt::skip]
    let off_begins = [
        0x0a, 31, // Trace.packet, 31 bytes
        0x5a, 21, // track_event, 21 bytes
            0x48, 1, // type SLICE_BEGIN
            0x58, 0x81, 0x80, 0x80, 0x80, 0x10, // track_uuid 2^32 + 1
            0xb2, 0x01, 4, b'v', b'c', b'p', b'u', // categories
            0xba, 0x01, 3, b'o', b'f', b'f', // name
        0x40, 0xd0, 0x0f, // timestamp 2000
        0x50, 1, // trusted_packet_sequence_id
        0xd0, 0x03, 3, // timestamp_clock_id MONOTONIC
    ];
    assert!(
        trace.windows(off_begins.len()).any(|bytes| bytes == off_begins),
        "not found in {trace:02x?}"
    );
}

#[test]
fn several_vms_get_tracks_of_their_own() {
    let mut neighbour = tiny();
    neighbour.vm = "neighbour".into();
    let trace = bytes(&[tiny(), neighbour]);
    let uuids: Vec<_> = packets(&trace)
        .iter()
        .filter_map(|p| p.split_once("60.1=").map(|(_, rest)| rest.split(' ').next()?.parse().ok()))
        .collect::<Option<Vec<u64>>>()
        .unwrap();
    assert_eq!(uuids.len(), 6);
    assert_eq!(uuids.iter().collect::<std::collections::BTreeSet<_>>().len(), 6);
}

#[test]
fn every_slice_that_begins_ends() {
    let packets = packets(&bytes(&[tiny()]));
    let count = |what: &str| packets.iter().filter(|p| p.contains(what)).count();
    assert_eq!(count("11.9=1 "), 3);
    assert_eq!(count("11.9=2 "), 3);
}

/// Slices are the model's intervals, in its order: repeats are merged, and empty ones left out.
#[test]
fn slices_are_the_intervals_of_the_recording() {
    use VcpuState::{Idle, Off, On};
    let history = [
        (1000, 1, On),
        (1000, 0, Idle),
        (1500, 1, On),
        (2000, 1, Off),
        (2000, 1, On),
        (2500, 1, Idle),
        (3000, 0, On),
        (3000, 0, Off),
        (5000, 1, Off),
    ];
    let event = |(t_ns, vcpu, state)| VcpuEvent { t_ns, vcpu, state };
    let recording = Recording { events: history.map(event).to_vec(), ..tiny() };
    let lane = |vcpu: u16| (1u64 << 32) + 1 + u64::from(vcpu);
    let slices = recording.intervals().into_iter().flat_map(|one| {
        let (track, name) = (lane(one.vcpu), format!("{:?}", one.state).to_lowercase());
        let begin = format!("11.9=1 11.11={track} 11.22=\"vcpu\" 11.23={name:?}");
        [
            format!("{begin} 8={} 10=1 58=3", one.start_ns),
            format!("11.9=2 11.11={track} 8={} 10=1 58=3", one.end_ns),
        ]
    });
    assert_eq!(packets(&bytes(&[recording]))[4..], slices.collect::<Vec<_>>());
}

/// A search of all events for each vCPU would take a minute here.
#[test]
fn many_vcpus_and_many_events_are_written() {
    let event = |n: u64| VcpuEvent {
        t_ns: 1000 + n,
        vcpu: u16::MAX - 1,
        state: if n % 2 == 0 { VcpuState::On } else { VcpuState::Off },
    };
    let events = (0..50_000).map(event).collect();
    let recording = Recording { vcpus: u16::MAX, end_ns: 51_000, events, ..tiny() };
    assert!(bytes(&[recording]).len() > 1_000_000);
}

/// vCPU 0 spins from 2000 to 4000 for a lock that vCPU 1 took at 2200; vCPU 1 was off from 2500 to
/// 3900. Meanwhile an interrupt on vCPU 0 spins for another lock.
fn session() -> Session {
    let spin = |lock, begin_ns, end_ns, before| Spin {
        wait: Wait::Spinlock,
        lock,
        asleep: false,
        vcpu: 0,
        tid: 7,
        begin_ns,
        end_ns,
        halted_ns: 0,
        owner: None,
        before,
        site: "d_alloc".into(),
    };
    let before = Some(Taken { vcpu: 1, t_ns: 2200 });
    Session {
        vcpus: 2,
        start_ns: 1000,
        end_ns: 9000,
        offs: vec![FoundOff {
            vcpu: 1,
            start_ns: 2500,
            end_ns: 3900,
            start_error_ns: 0,
            was_idle: false,
        }],
        spins: vec![spin(0xa0, 3000, 3100, None), spin(0xb0, 2000, 4000, before)],
        lost: 5,
        ..Session::default()
    }
}

#[test]
fn a_session_has_lanes_of_off_intervals_and_spins_and_an_arrow_to_the_holder() {
    let mut bytes = Vec::new();
    perfetto::write_session(&mut bytes, &session()).unwrap();
    let guest = 1_u64 << 32;
    let lane = |rank: u64, name| {
        format!("60.1={} 60.2={name:?} 60.5={guest} 60.12={rank} 10=1", guest + rank + 1)
    };
    let begin = |t, track, categories: [&str; 2], name: &str, flow: &str| {
        let [kind, cause] = categories.map(|c| format!("11.22={c:?} "));
        let cause = if categories[1].is_empty() { String::new() } else { cause };
        let track = guest + track;
        format!("11.9=1 11.11={track} {kind}{cause}11.23={name:?} {flow}8={t} 10=1 58=3")
    };
    let end = |t, track: u64| format!("11.9=2 11.11={} 8={t} 10=1 58=3", guest + track);
    let about = "what the guest found by itself; 5 findings lost";
    let holder_off = |kind| [kind, "holder-off"];
    assert_eq!(
        packets(&bytes),
        [
            "6.1.1=3 6.1.2=1000 6.1.1=6 6.1.2=1000 6.2=3 10=1".to_string(),
            format!("60.1={guest} 60.3.1=1 60.3.6=\"guest\" 60.11=3 60.14={about:?} 10=1"),
            lane(0, "vCPU 0"),
            lane(1, "vCPU 0 spins"),
            lane(2, "vCPU 0 spins"),
            lane(3, "vCPU 1"),
            lane(4, "vCPU 1 is waited for"),
            begin(2000, 2, holder_off("spin"), "spinlock in d_alloc: holder-off", "11.47=2 "),
            begin(
                2200,
                5,
                holder_off("held"),
                "spinlock that vCPU 0 waits for in d_alloc",
                "11.47=2 "
            ),
            begin(2500, 4, ["off", ""], "off", ""),
            begin(3000, 3, ["spin", "plain"], "spinlock in d_alloc: plain", ""),
            end(3100, 3),
            end(3900, 4),
            end(4000, 2),
            end(4000, 5),
        ]
    );
}
