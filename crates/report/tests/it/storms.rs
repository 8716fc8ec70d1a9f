//! The terminal's view of pause-loop storms.

use unspin_report::storms::text;
use unspin_trace::storms::{Limits, Symbols, read};

const TRACE: &str = include_str!("../../../trace/tests/data/storm.txt");

#[test]
fn storms_as_text() {
    let symbols =
        Symbols::read(&b"ffffffffb72e2000 t native_queued_spin_lock_slowpath\n"[..]).unwrap();
    let found = read(TRACE.as_bytes(), Limits::default(), Some(&symbols)).unwrap();
    insta::assert_snapshot!(text(&found));
}

#[test]
fn a_trace_without_pause_exits_as_text() {
    let hlt = "CPU 0/KVM 9 [000] 1.5: kvm:kvm_exit: vcpu 0 reason HLT rip 0x10 info 0 0\nelse\n";
    insta::assert_snapshot!(text(&read(hlt.as_bytes(), Limits::default(), None).unwrap()));
}

#[test]
fn what_the_tracer_lost_is_said() {
    let lost = format!("CPU:3 [LOST 12 EVENTS]\n{TRACE}");
    let found = read(lost.as_bytes(), Limits::default(), None).unwrap();
    let words = "The tracer lost 12 events or more, first before line 1: storms may be missing";
    assert!(text(&found).contains(words), "{}", text(&found));
}
