//! Signals that ask to end, in a process on which no other test depends.

use nix::sys::signal::{Signal, raise};
use unspin_host::interrupt;

#[test]
fn who_restores_a_terminal_is_not_ended_by_a_second_signal() {
    interrupt::install_flag().expect("handlers");
    assert!(!interrupt::requested());
    for signal in [Signal::SIGTERM, Signal::SIGTERM, Signal::SIGINT] {
        raise(signal).expect("a signal to this thread");
        assert!(interrupt::requested());
    }
}
