//! Session files: the reader returns the findings that were written. Damage is an error, never a
//! panic.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use unspin_model::episode::{Owner, OwnerState, Spin, Wait};
use unspin_model::session::{About, FoundOff, Look};
use unspin_model::{Session, VcpuState};
use unspin_trace::session::{
    MAX_ABOUT_BYTES, MAX_SITE_BYTES, SessionError, Stretch, Writer, read_from,
};

fn off(vcpu: u16, start_ns: u64, len_ns: u64, was_idle: bool) -> FoundOff {
    FoundOff { vcpu, start_ns, end_ns: start_ns + len_ns, start_error_ns: 7, was_idle }
}

fn spin(begin_ns: u64) -> Spin {
    Spin {
        wait: Wait::Mutex,
        lock: 0xffff_8880_0000_1000,
        asleep: begin_ns % 2 == 0,
        vcpu: 1,
        tid: 77,
        begin_ns,
        end_ns: begin_ns + 40,
        halted_ns: 0,
        owner: Some(Owner { tid: 78, vcpu: 0, state: OwnerState::Runnable, delay_ns: 5 }),
        before: None,
        site: "do_rename".into(),
    }
}

fn stretch(vcpu: u16, start_ns: u64, end_ns: u64) -> Stretch {
    let (user_spin_ns, steal_ns) = ((vcpu == 1).then_some(3), Some(20));
    Stretch { vcpu, start_ns, end_ns, beats: 11, idle_ns: 5, lost: 1, user_spin_ns, steal_ns }
}

/// Returns the table in a file, uncompressed.
fn table_of(bytes: &[u8]) -> Vec<u8> {
    let mut table = Vec::new();
    MultiGzDecoder::new(bytes).read_to_end(&mut table).unwrap();
    table
}

/// Packs a table into a file of one gzip member with the right checksum.
fn packed(table: &[u8]) -> Vec<u8> {
    let mut member = GzEncoder::new(Vec::new(), Compression::fast());
    member.write_all(table).unwrap();
    member.finish().unwrap()
}

/// Returns a file with three batches of two vCPUs, and the offset at which each batch ends.
fn file() -> (Vec<u8>, Vec<usize>) {
    let mut bytes = Vec::new();
    let mut ends = Vec::new();
    for batches in 1..=3 {
        bytes.clear();
        let mut writer = Writer::new(&mut bytes, &About::default()).unwrap();
        for batch in 0..batches {
            let t = 1_000 + 1_000 * batch;
            let offs = [off(0, t, 100, false), off(1, t + 50, 200, true)];
            let looks = [Look { t_ns: t, vcpu: 1, state: VcpuState::Off }];
            let stretches = [stretch(0, t, t + 1_000), stretch(1, t, t + 1_000)];
            writer.write(&offs, &[spin(t)], &looks, &stretches).unwrap();
        }
        drop(writer);
        ends.push(bytes.len());
    }
    (bytes, ends)
}

#[test]
fn what_is_written_comes_back() {
    let (bytes, _) = file();
    let session = read_from(&bytes[..], "s").unwrap();
    assert_eq!((session.vcpus, session.start_ns, session.end_ns), (2, 1_000, 4_000));
    assert_eq!((session.beats, session.lost), (66, 6));
    assert!(session.incomplete.is_some(), "it was not finished");
    assert_eq!((session.user_spin_ns, session.steal_ns), (vec![0, 9], vec![60, 60]));
    assert_eq!(session.offs.len(), 6);
    assert_eq!(session.offs[3], off(1, 2_050, 200, true));
    assert_eq!(session.spins, [1_000, 2_000, 3_000].map(spin));
    let look = Look { t_ns: 3_000, vcpu: 1, state: VcpuState::Off };
    assert_eq!(session.looks.last(), Some(&look));
}

#[test]
fn a_vcpu_without_rows_was_offline() {
    let read = |stretches: &[Stretch]| {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, &About::default()).unwrap();
        writer.write(&[off(3, 1_050, 200, true)], &[], &[], stretches).unwrap();
        writer.finish().unwrap();
        read_from(&bytes[..], "s").unwrap().offline
    };
    assert_eq!(read(&[stretch(1, 1_000, 2_000)]), [0, 2]);
    assert!(read(&[]).is_empty(), "it does not say which vCPUs it covers");
}

#[test]
fn where_it_was_recorded_comes_back() {
    let mut bytes = Vec::new();
    let text = |text: &str| Some(text.to_owned());
    let about = About { program: text("unspin 1"), kernel: text("6.18"), ..About::default() };
    let about = About { hidden: vec!["waits for IPIs".into(), "futexes".into()], ..about };
    Writer::new(&mut bytes, &about).unwrap().finish().unwrap();
    let session = read_from(&bytes[..], "s").unwrap();
    assert_eq!((session.about, session.incomplete), (about, None));
}

#[test]
fn a_spin_is_halted_for_its_whole_length_at_most() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &About::default()).unwrap();
    let of = |halted_ns| Spin { wait: Wait::Spinlock, asleep: false, halted_ns, ..spin(1_000) };
    writer.write(&[], &[of(30), of(u64::MAX)], &[], &[]).unwrap();
    writer.finish().unwrap();
    let session = read_from(&bytes[..], "s").unwrap();
    let halted: Vec<_> = session.spins.iter().map(|spin| spin.halted_ns).collect();
    assert_eq!(halted, [30, 40]);
}

#[test]
fn a_wait_that_cannot_be_is_written_as_lost() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &About::default()).unwrap();
    let waits = [Wait::Spinlock, Wait::Mutex, Wait::Rwsem, Wait::Futex, Wait::Ipi];
    let all = waits.map(|wait| [true, false].map(|asleep| Spin { wait, asleep, ..spin(1_000) }));
    writer.write(&[], all.as_flattened(), &[], &[]).unwrap();
    writer.finish().unwrap();
    let session = read_from(&bytes[..], "s").unwrap();
    let read: Vec<_> = session.spins.iter().map(|spin| (spin.wait, spin.asleep)).collect();
    let can_be = [
        (Wait::Spinlock, false),
        (Wait::Mutex, true),
        (Wait::Mutex, false),
        (Wait::Rwsem, true),
        (Wait::Futex, true),
        (Wait::Ipi, false),
    ];
    assert_eq!(read, can_be);
    assert_eq!(session.lost, 4);
    assert_eq!(session.incomplete, None);
    for missing in [1, 20] {
        let cut = read_from(&bytes[..bytes.len() - missing], "s").unwrap();
        assert!(cut.incomplete.is_some(), "{missing} bytes are missing");
    }
}

#[test]
fn a_finding_of_another_kind_is_an_error() {
    let (bytes, _) = file();
    let mut table = table_of(&bytes);
    let name = b"wait-mutex";
    let at = table.windows(name.len()).position(|here| here == name).unwrap();
    table[at..at + name.len()].copy_from_slice(b"wait-ghost");
    let error = read_from(&packed(&table)[..], "s").unwrap_err().to_string();
    assert_eq!(error, "s, batch 0: row 2: format 2 has no findings of kind `wait-ghost`");
}

/// Returns a file with only these spins.
fn file_of(spins: &[Spin]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &About::default()).unwrap();
    writer.write(&[], spins, &[], &[]).unwrap();
    writer.finish().unwrap();
    bytes
}

#[test]
fn a_site_that_is_too_long_is_an_error() {
    let bytes = file_of(&["a", "b"].map(|name| Spin { site: name.repeat(300), ..spin(1_000) }));
    let mut table = table_of(&bytes);
    // The end of the first site and the begin of the second: the second gets the bytes of both.
    let offsets: Vec<u8> = [0, 300, 600_i32].into_iter().flat_map(i32::to_le_bytes).collect();
    let at = table.windows(offsets.len()).position(|here| here == &offsets[..]).unwrap();
    table[at + 4..at + 8].fill(0);
    let error = read_from(&packed(&table)[..], "s").unwrap_err().to_string();
    assert_eq!(error, "s, batch 0: row 1: a site of 600 bytes, more than 512");
}

#[test]
fn a_site_that_is_too_long_is_not_written() {
    let lens = [MAX_SITE_BYTES, MAX_SITE_BYTES + 1];
    let spins = lens.map(|len| Spin { site: "s".repeat(len), ..spin(1_000) });
    let session = read_from(&file_of(&spins)[..], "s").unwrap();
    assert_eq!(session.spins[0], spins[0]);
    assert_eq!(session.spins[1].site, "");
}

#[test]
fn a_text_about_the_machine_that_is_too_long_is_an_error() {
    let read = |len| {
        let about = About { hidden: vec!["h".repeat(len)], ..About::default() };
        let mut bytes = Vec::new();
        Writer::new(&mut bytes, &about).unwrap().finish().unwrap();
        read_from(&bytes[..], "s")
    };
    assert!(read(MAX_ABOUT_BYTES).is_ok());
    let error = read(MAX_ABOUT_BYTES + 1).unwrap_err().to_string();
    assert_eq!(error, "s, batch 0: `unspin.hidden` has 65537 bytes, more than 65536");
}

/// Reads a file whose head names another format of one digit.
fn read_as(format: u8) -> Result<Session, SessionError> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &About::default()).unwrap();
    let stretch = Stretch { user_spin_ns: None, steal_ns: None, ..stretch(1, 1_000, 2_000) };
    writer.write(&[off(1, 1_050, 200, true)], &[], &[], &[stretch]).unwrap();
    drop(writer);
    let mut table = table_of(&bytes);
    let text = [1, 0, 0, 0, b'2', 0];
    let at = table.windows(text.len()).position(|here| here == text).unwrap();
    table[at + 4] = format;
    read_from(&packed(&table)[..], "s")
}

#[test]
fn an_older_format_is_read_and_a_later_one_is_not() {
    let session = read_as(b'1').unwrap();
    assert_eq!((session.offs.len(), session.end_ns), (1, 2_000));
    assert!(session.user_spin_ns.is_empty() && session.steal_ns.is_empty());
    let error = read_as(b'3').unwrap_err().to_string();
    assert!(error.contains("no session of format 1 or 2"), "{error}");
}

#[test]
fn a_killed_recorder_loses_no_more_than_its_last_batch() {
    let (bytes, ends) = file();
    for cut in ends[0]..bytes.len() {
        let whole = ends.iter().filter(|end| **end <= cut).count();
        let session = read_from(&bytes[..cut], "s").unwrap();
        assert_eq!(session.offs.len(), 2 * whole, "cut at {cut} of {ends:?}");
        assert!(session.incomplete.is_some());
    }
}

#[test]
fn something_else_is_told_from_a_session() {
    assert_eq!(read_from(&b""[..], "x").unwrap_err().to_string(), "x: the session is empty");
    for bytes in [&b"PK\x03\x04 something else"[..], &[0; 64], &[0xff; 64]] {
        let error = read_from(bytes, "x.arrow").unwrap_err();
        assert!(matches!(&error, SessionError::Damaged { batch: 0, .. }), "{error}");
        assert!(error.to_string().starts_with("x.arrow, batch 0: "), "{error}");
    }
}

/// Checks that the reader returns a session, or an error that describes the damage.
fn is_survived(bytes: &[u8]) {
    match read_from(bytes, "s") {
        Ok(session) => assert!(session.start_ns <= session.end_ns, "{session:?}"),
        Err(SessionError::Empty { .. }) => assert!(bytes.is_empty()),
        Err(SessionError::Damaged { what, .. }) => assert!(!what.is_empty()),
        Err(other) => panic!("nothing is opened or written: {other}"),
    }
}

/// Returns damage to a file: bytes to replace with others.
fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)
}

fn changed(mut bytes: Vec<u8>, changes: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    for (at, byte) in changes {
        let at = at.index(bytes.len());
        bytes[at] = *byte;
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    /// Any damage; a checksum finds most of it.
    #[test]
    fn damage_is_survived(changes in changes()) {
        is_survived(&changed(file().0, &changes));
    }

    /// Damage within a table with a right checksum, as in a malicious file.
    #[test]
    fn damage_that_no_checksum_finds_is_survived(changes in changes()) {
        is_survived(&packed(&changed(table_of(&file().0), &changes)));
    }

    /// Any bytes: as a file, as a table, and in place of a session's first batch.
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        is_survived(&bytes);
        is_survived(&packed(&bytes));
        let mut begun = Vec::new();
        drop(Writer::new(&mut begun, &About::default()).unwrap());
        begun.extend(packed(&bytes));
        is_survived(&begun);
    }
}
