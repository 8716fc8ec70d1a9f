//! The recording file keeps the recordings written to it, and survives damage.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use unspin_model::{Recording, VcpuEvent, VcpuState};
use unspin_trace::recording::{MAX_LINE_BYTES, read, read_from, write, write_to};

fn state() -> impl Strategy<Value = VcpuState> {
    prop_oneof![Just(VcpuState::On), Just(VcpuState::Off), Just(VcpuState::Idle)]
}

prop_compose! {
    fn recording()(
        vm in ".{0,20}",
        vcpus in 1..16u16,
        start_ns in 0..u64::MAX / 2,
        alignment_error_ns in any::<u64>(),
        lost in any::<u64>(),
        steps in prop::collection::vec((0..1u64 << 40, 0..16u16, state()), 0..40),
        tail_ns in 0..1u64 << 40,
    ) -> Recording {
        let mut t_ns = start_ns;
        let events: Vec<_> = steps.into_iter().map(|(step_ns, vcpu, state)| {
            t_ns += step_ns;
            VcpuEvent { t_ns, vcpu: vcpu % vcpus, state }
        }).collect();
        Recording { vm, vcpus, start_ns, end_ns: t_ns + tail_ns, alignment_error_ns, lost, events }
    }
}

fn bytes_of(recordings: &[Recording]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_to(&mut bytes, recordings).unwrap();
    bytes
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(recordings in prop::collection::vec(recording(), 0..4)) {
        let bytes = bytes_of(&recordings);
        prop_assert_eq!(read_from(&bytes[..], "memory").unwrap(), recordings);
    }

    #[test]
    fn every_truncation_is_an_error(recordings in prop::collection::vec(recording(), 0..3)) {
        let bytes = bytes_of(&recordings);
        for end in 0..bytes.len() {
            prop_assert!(read_from(&bytes[..end], "memory").is_err(), "cut at {}", end);
        }
    }

    #[test]
    fn a_flipped_bit_never_panics_nor_passes_as_other_data(
        recording in recording(), at in any::<prop::sample::Index>(), bit in 0..8u8,
    ) {
        let recordings = vec![recording];
        let mut bytes = bytes_of(&recordings);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(read) = read_from(&bytes[..], "memory") {
            // Only bits without meaning, such as those of the gzip header's time, change unnoticed.
            prop_assert_eq!(read, recordings);
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in any::<Vec<u8>>()) {
        let _ = read_from(&gzip(&text)[..], "memory");
        let _ = read_from(&text[..], "memory");
    }
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn header(events: usize) -> String {
    format!(
        "{{\"format\":1,\"vm\":\"s\",\"vcpus\":2,\"start_ns\":10,\"end_ns\":90,\
         \"alignment_error_ns\":0,\"lost\":0,\"events\":{events}}}\n"
    )
}

fn error_of(text: &str) -> String {
    read_from(&gzip(text.as_bytes())[..], "r.gz").unwrap_err().to_string()
}

#[test]
fn errors_name_the_line_and_the_reason() {
    for (body, wanted) in [
        ("5 0 on\n5 1 maybe\n", "r.gz, line 3: state `maybe` is not one of on, off, idle"),
        ("5 0 on\n", "r.gz, line 3: the file ends after 1 of 2 events"),
        ("5 0 on\n5 2 on\n", "r.gz, line 3: vCPU 2 of only 2"),
        ("5 0 on\n76 0 on\n", "r.gz, line 3: the event lies after the window's end"),
        ("5 0 on\n18446744073709551615 0 on\n", "r.gz, line 3: the event lies after the"),
        ("5 0\n", "r.gz, line 2: an event was expected here"),
        ("5 0 on x\n", "r.gz, line 2: an event was expected here"),
        ("-5 0 on\n", "r.gz, line 2: nanoseconds `-5`"),
        ("5 0 on\n6 1 off\nmore\n", "r.gz, line 4: a recording's header was expected here"),
        ("5 0 on\n6 1 off", "r.gz, line 3: no end of line within 4096 bytes"),
    ] {
        let error = error_of(&(header(2) + body));
        assert!(error.starts_with(wanted), "{error}");
    }
}

#[test]
fn an_unknown_format_is_refused() {
    let error = error_of(&header(0).replace("\"format\":1", "\"format\":2"));
    assert_eq!(error, "r.gz, line 1: format 2 is not known; this version reads 1");
}

#[test]
fn a_huge_event_count_is_refused_before_anything_is_allocated() {
    let error = error_of(&header(usize::MAX));
    assert!(error.contains("more than 16777216 events"), "{error}");
}

#[test]
fn vcpus_without_number_are_neither_read_nor_written() {
    let header = header(0).replace("\"vcpus\":2", "\"vcpus\":65535");
    let read = read_from(&gzip(header.repeat(16).as_bytes())[..], "r.gz").unwrap();
    assert_eq!(read.len(), 16);
    let error = error_of(&header.repeat(17));
    assert_eq!(error, "r.gz, line 17: the file has more than 1048576 vCPUs");
    assert!(write_to(Vec::new(), &read).is_ok());
    let more = [&read[..], &read[..1]].concat();
    let error = write_to(Vec::new(), &more).unwrap_err().to_string();
    assert!(error.contains("1048576 vCPUs; split it"), "{error}");
}

#[test]
fn a_line_without_end_is_refused() {
    let error = error_of(&"x".repeat(10 * MAX_LINE_BYTES));
    assert_eq!(error, "r.gz, line 1: no end of line within 4096 bytes");
}

fn small() -> Recording {
    let event = |t_ns, vcpu, state| VcpuEvent { t_ns, vcpu, state };
    Recording {
        vm: "subject".into(),
        vcpus: 2,
        start_ns: 100,
        end_ns: 900,
        alignment_error_ns: 7,
        lost: 0,
        events: vec![
            event(100, 0, VcpuState::On),
            event(100, 1, VcpuState::Idle),
            event(350, 0, VcpuState::Off),
        ],
    }
}

#[test]
fn the_text_is_what_the_documentation_shows() {
    let mut text = String::new();
    let bytes = bytes_of(&[small()]);
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut text)
        .unwrap();
    assert_eq!(
        text,
        "{\"format\":1,\"vm\":\"subject\",\"vcpus\":2,\"start_ns\":100,\"end_ns\":900,\
         \"alignment_error_ns\":7,\"lost\":0,\"events\":3}\n0 0 on\n0 1 idle\n250 0 off\n"
    );
}

#[test]
fn recordings_that_break_the_rules_are_not_written() {
    let with = |change: fn(&mut Recording)| {
        let mut recording = small();
        change(&mut recording);
        write_to(Vec::new(), &[recording]).unwrap_err().to_string()
    };
    assert!(with(|r| r.events.swap(0, 2)).contains("out of time order"));
    assert!(with(|r| r.end_ns = 340).contains("after the window's end"));
    assert!(with(|r| r.end_ns = 99).contains("ends before it starts"));
    assert!(with(|r| r.vcpus = 1).contains("vCPU 1 of only 1"));
    assert!(with(|r| r.vm = "v".repeat(5000)).contains("header exceeds"));
}

#[test]
fn files_are_written_and_read_and_errors_name_them() {
    let path = std::env::temp_dir().join(format!("unspin-trace-{}.gz", std::process::id()));
    write(&path, &[small(), small()]).unwrap();
    assert_eq!(read(&path).unwrap(), [small(), small()]);
    std::fs::write(&path, b"not gzip").unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains(&*path.to_string_lossy()), "{error}");
    std::fs::remove_file(&path).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.starts_with("cannot open"), "{error}");
}
