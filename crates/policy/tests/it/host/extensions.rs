//! Tests of the extra tick in a critical section.

use super::machine::{MS, Machine, NICE_0, SECOND};
use unspin_policy::host::{Config, Scheduler};

/// Returns the times at which thread 0 leaves the pCPU that it shares with one other thread. It is
/// in a critical section from `from_ms` to `to_ms`.
fn leaves_ms(extend: bool, scheduler: Scheduler, from_ms: u64, to_ms: u64) -> Vec<u64> {
    let mut machine = Machine::new(&Config { extend, ..Config::new(1, scheduler) });
    let threads = machine.greedy(2);
    for (at_ms, critical) in [(from_ms, true), (to_ms, false), (100, false)] {
        machine.run_until(at_ms * MS);
        machine.host.set_critical(threads[0], critical);
    }
    let mut runs = false;
    let mut left = Vec::new();
    for switch in &machine.switches {
        if runs && switch.thread != Some(threads[0]) {
            left.push(switch.at / MS);
        }
        runs = switch.thread == Some(threads[0]);
    }
    left
}

/// On one pCPU, EEVDF's slice is 0.7 ms, so it ends at each tick of 4 ms.
#[test]
fn a_critical_section_of_three_ticks_is_left_one_more_and_then_preempted() {
    let plain = leaves_ms(false, Scheduler::Eevdf, 2, 14);
    assert_eq!(plain[..4], [4, 12, 20, 28]);
    let extended = leaves_ms(true, Scheduler::Eevdf, 2, 14);
    assert_eq!(extended[0], 8, "a tick more, and no third one");
    // The thread pays for the overtime: it stays off for two ticks.
    assert_eq!(extended[..3], [8, 20, 28]);
}

#[test]
fn nobody_is_left_a_tick_without_a_critical_section() {
    for scheduler in [Scheduler::Eevdf, Scheduler::Cfs] {
        let (plain, extended) =
            (leaves_ms(false, scheduler, 0, 0), leaves_ms(true, scheduler, 0, 0));
        assert_eq!(plain, extended, "{scheduler:?}");
    }
}

#[test]
fn overtime_is_charged_so_shares_stay_equal() {
    for scheduler in [Scheduler::Eevdf, Scheduler::Cfs] {
        let mut machine = Machine::new(&Config { extend: true, ..Config::new(1, scheduler) });
        let threads = machine.greedy(2);
        machine.host.set_critical(threads[0], true);
        machine.run_until(2 * SECOND);
        assert!(machine.host.extensions() > 20, "{scheduler:?}: {}", machine.host.extensions());
        let ran: Vec<u64> =
            threads.iter().map(|thread| machine.host.runtime(*thread, machine.now)).collect();
        assert!(ran[0].abs_diff(ran[1]) <= 16 * MS, "{scheduler:?}: {ran:?}");
    }
}

/// A thread that wakes up preempts as usual, because eCS changes only ticks.
#[test]
fn a_thread_that_wakes_up_still_preempts() {
    for extend in [true, false] {
        let config = Config { extend, tick_ns: 10 * MS, ..Config::new(1, Scheduler::Eevdf) };
        let mut machine = Machine::new(&config);
        let sleeper = machine.add(0, NICE_0);
        let threads = machine.greedy(1);
        machine.host.set_critical(threads[0], true);
        machine.run_until(5 * MS);
        machine.wake(sleeper);
        let last = machine.switches.last().map(|switch| (switch.at, switch.thread));
        assert_eq!(last, Some((5 * MS, Some(sleeper))), "extend: {extend}");
    }
}
