//! Pause-loop storms from the text of a trace.

use proptest::prelude::*;
use unspin_trace::storms::{self, Limits, Storms, Symbols};

const PUBLISHED: &str = include_str!("../data/storm.txt");

fn read(text: &str) -> Storms {
    storms::read(text.as_bytes(), Limits::default(), None).unwrap()
}

/// Returns a line in the format of perf.
fn event(tid: u32, t_us: u64, what: &str) -> String {
    format!("CPU 0/KVM {tid} [001] {}.{:06}: kvm:{what}\n", t_us / 1_000_000, t_us % 1_000_000)
}

fn pause(tid: u32, t_us: u64, address: u64) -> String {
    event(tid, t_us, &format!("kvm_exit: vcpu 0 reason pause rip {address:#x} info1 0x0"))
}

#[test]
fn the_published_storm_is_one_of_eleven_exits() {
    let found = read(PUBLISHED);
    assert_eq!((found.lines, found.lines_unknown), (23, 2));
    assert_eq!((found.exits, found.pause_exits, found.storm_exits, found.storms), (11, 11, 11, 1));
    assert_eq!(found.storm_share, Some(1.0));
    let storm = &found.longest[0];
    assert_eq!((storm.tid, storm.vcpu, storm.length), (2679, Some(2), 11));
    assert_eq!(storm.place, "0xffffffffb72e29e3");
    assert!((storm.start_s - 276.731_784).abs() < 1e-9);
    assert!((storm.duration_us - 274.0).abs() < 1e-6);
    let apart = found.apart_us.unwrap();
    assert!((apart.p50 - 26.0).abs() < 0.1 && (apart.max - 39.0).abs() < 0.1, "{apart:?}");
}

#[test]
fn another_exit_another_address_and_a_long_time_in_the_guest_end_a_storm() {
    let hlt = event(7, 35, "kvm_exit: vcpu 0 reason hlt rip 0x99 info1 0x0");
    let text: String = [
        (0..4).map(|n| pause(7, n * 10, 0x10)).collect(),
        hlt,
        (4..8).map(|n| pause(7, n * 10, 0x10)).collect::<String>(),
        (8..12).map(|n| pause(7, n * 10, 0x20)).collect(),
        (0..4).map(|n| pause(7, 2_000 + n * 10, 0x20)).collect(),
        // Two exits in a row do not make a storm.
        (0..2).map(|n| pause(8, n * 10, 0x20)).collect(),
    ]
    .concat();
    let found = read(&text);
    assert_eq!((found.exits, found.pause_exits, found.storm_exits, found.storms), (19, 18, 16, 4));
    let places: Vec<_> =
        found.places.iter().map(|p| (&*p.name, p.pause_exits, p.storm_exits)).collect();
    assert_eq!(places, [("0x20", 10, 8), ("0x10", 8, 8)]);
    assert_eq!((found.vcpus[0].tid, found.vcpus[0].storms, found.vcpus[1].storms), (7, 4, 0));
    assert!((found.vcpus[0].storm_s - 120e-6).abs() < 1e-12);
}

#[test]
fn vcpus_with_one_index_in_two_vms_are_two() {
    let text: String = (0..6).map(|n| pause(10 + n % 2, u64::from(n) * 10, 0x10)).collect();
    let found = read(&text);
    assert_eq!((found.storms, found.vcpus.len()), (2, 2));
}

#[test]
fn the_time_from_entry_to_exit_is_what_counts() {
    let entry = |t_us| event(7, t_us, "kvm_entry: vcpu 0, rip 0x10");
    let text = [pause(7, 0, 1), entry(5_000), pause(7, 5_010, 1), entry(9_000), pause(7, 9_010, 1)]
        .concat();
    assert_eq!(read(&text).storms, 1, "the host kept it off between, the guest did nothing");
    let limits = Limits { length_min: 4, ..Limits::default() };
    assert_eq!(storms::read(text.as_bytes(), limits, None).unwrap().storms, 0);
}

#[test]
fn addresses_of_one_function_are_one_place() {
    let symbols =
        Symbols::read(&b"10 T first\n20 t native_queued_spin_lock_slowpath\n"[..]).unwrap();
    let text =
        [pause(7, 0, 0x21), pause(7, 10, 0x25), pause(7, 20, 0x10), pause(7, 30, 1)].concat();
    let found = storms::read(text.as_bytes(), Limits::default(), Some(&symbols)).unwrap();
    let places: Vec<_> = found.places.iter().map(|p| (&*p.name, p.pause_exits)).collect();
    assert_eq!(places, [("native_queued_spin_lock_slowpath", 2), ("0x1", 1), ("first", 1)]);
}

#[test]
fn only_the_longest_are_kept_longest_first() {
    let text: String = (3..40_u32)
        .flat_map(|length| (0..length).map(move |n| (length, n)))
        .map(|(length, n)| pause(length, u64::from(n) * 10, 0x10))
        .collect();
    let lengths: Vec<_> = read(&text).longest.iter().map(|storm| storm.length).collect();
    assert_eq!(lengths, (30..40).rev().collect::<Vec<_>>());
}

#[test]
fn what_the_tracer_lost_is_counted() {
    assert_eq!(read(PUBLISHED).lost, None);
    let text = ["cpus=8\n", &pause(7, 0, 1), "CPU:1 [LOST 40 EVENTS]\n", &pause(7, 9, 1)].concat();
    let found = read(&(text + "CPU:1 [LOST EVENTS]\n"));
    assert_eq!(found.lost, Some(storms::LeftOut { events: 41, first_line: 3 }));
    assert_eq!((found.exits, found.lines_unknown), (2, 3));
}

#[test]
fn nothing_at_all_is_no_error() {
    let found = read("");
    assert_eq!((found.lines, found.exits, found.storm_share, found.length), (0, 0, None, None));
    let long = "x".repeat(1_000_000);
    assert_eq!(read(&format!("{long}\n{}", pause(7, 1, 2))).pause_exits, 1);
    assert_eq!(read(&long).lines, 1);
}

proptest! {
    /// Storms never have more exits than the trace has, whatever its text.
    #[test]
    fn counts_add_up(bytes in prop::collection::vec(any::<u8>(), 0..2_000), cut in 0..2_000_usize) {
        let text = PUBLISHED.as_bytes();
        let (head, tail) = text.split_at(cut.min(text.len()));
        let mixed = [head, &bytes[..], tail].concat();
        let found = storms::read(&mixed[..], Limits::default(), None).unwrap();
        prop_assert!(found.storm_exits <= found.pause_exits && found.pause_exits <= found.exits);
        prop_assert!(found.exits + found.lines_unknown <= found.lines);
        prop_assert_eq!(found.places.iter().map(|p| p.pause_exits).sum::<u64>(), found.pause_exits);
    }

    /// In any order of the lines, no vCPU is in storms for longer than the trace lasts, and unused
    /// events are counted.
    #[test]
    fn disorder_never_makes_storms_longer(
        order in prop::collection::vec(any::<prop::sample::Index>(), 1..80),
    ) {
        let lines: Vec<&str> = PUBLISHED.lines().skip(2).collect();
        let text: String =
            order.iter().map(|at| format!("{}\n", lines[at.index(lines.len())])).collect();
        let found = read(&text);
        for vcpu in &found.vcpus {
            prop_assert!(vcpu.storm_s <= found.span_s);
        }
        let events = |left_out: Option<storms::LeftOut>| left_out.map_or(0, |all| all.events);
        let left_out = events(found.disordered) + events(found.repeated);
        prop_assert!(found.exits + left_out <= found.lines);
        let in_order = found.disordered.is_none() && found.repeated.is_none();
        prop_assert_eq!(in_order, left_out == 0);
    }

    #[test]
    fn kallsyms_of_any_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..500),
        at: u64,
    ) {
        if let Ok(symbols) = Symbols::read(&bytes[..]) {
            let _ = symbols.name(at);
        }
    }
}
