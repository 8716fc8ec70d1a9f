//! Where a thread wakes up, and whether it preempts.

use crate::machine::{MS, Machine, NICE_0};
use unspin_policy::host::{Config, Scheduler, State};

/// How long a thread waits that has slept for long, on a pCPU with a greedy one.
fn wait_of_a_sleeper(scheduler: Scheduler, no_features: u32) -> u64 {
    let config = Config { no_features, ..Config::new(1, scheduler) };
    let mut machine = Machine::new(&config);
    let threads = machine.greedy(2);
    machine.run_for(20 * MS);
    machine.block(threads[1]);
    machine.run_until(102 * MS);
    machine.wake(threads[1]);
    while machine.host.state(threads[1]) != State::On {
        machine.run_for(MS / 10);
    }
    machine.now - 102 * MS
}

#[test]
fn a_sleeper_preempts_within_a_tick() {
    for scheduler in [Scheduler::Eevdf, Scheduler::Cfs] {
        let wait = wait_of_a_sleeper(scheduler, 0);
        assert!(wait <= 4 * MS, "{scheduler:?}: {wait}");
    }
    assert_eq!(wait_of_a_sleeper(Scheduler::Cfs, 0), 0, "it is half the latency behind");
    assert!(wait_of_a_sleeper(Scheduler::Cfs, 2) > 0, "WAKEUP_PREEMPTION is off");
}

#[test]
fn a_sleeper_with_lag_preempts_at_once_where_slices_are_not_protected() {
    let preempts = |no_features| {
        let config = Config { no_features, slice_ns: 3 * MS, ..Config::new(1, Scheduler::Eevdf) };
        let mut machine = Machine::new(&config);
        let threads = machine.greedy(2);
        // Off for a while, it has lag when it blocks.
        while machine.host.current(0) != Some(threads[0]) {
            machine.run_for(MS);
        }
        machine.run_for(3 * MS);
        machine.block(threads[1]);
        machine.run_for(50 * MS + MS / 2);
        machine.wake(threads[1]);
        machine.host.current(0) == Some(threads[1])
    };
    assert!(preempts(1), "RUN_TO_PARITY is off");
    assert!(!preempts(1 | 2), "WAKEUP_PREEMPTION is off");
}

#[test]
fn a_thread_wakes_up_where_it_ran_or_on_an_idle_pcpu() {
    let mut machine = Machine::new(&Config::new(4, Scheduler::Eevdf));
    let threads = machine.greedy(4);
    assert_eq!(threads.iter().map(|t| machine.host.pcpu(*t)).collect::<Vec<_>>(), [0, 1, 2, 3]);
    machine.block(threads[1]);
    machine.block(threads[3]);
    machine.wake_from(threads[3], Some(0));
    assert_eq!(machine.host.pcpu(threads[3]), 3, "its own pCPU is idle");
    machine.block(threads[3]);
    let other = machine.add_on(0, NICE_0, 0..=0);
    machine.wake(other);
    machine.block(threads[0]);
    machine.wake_from(threads[0], Some(2));
    assert_eq!(machine.host.pcpu(threads[0]), 3, "the next idle one after the waker's");
}

#[test]
fn a_thread_wakes_up_on_the_less_loaded_of_its_own_and_the_wakers_pcpu() {
    let mut machine = Machine::new(&Config::new(2, Scheduler::Eevdf));
    let sleeper = machine.add(0, NICE_0);
    machine.wake(sleeper);
    assert_eq!(machine.host.pcpu(sleeper), 0);
    machine.block(sleeper);
    for pcpu in [0, 0, 0, 1] {
        let thread = machine.add_on(0, NICE_0, pcpu..=pcpu);
        machine.wake(thread);
    }
    machine.wake_from(sleeper, None);
    assert_eq!(machine.host.pcpu(sleeper), 0, "no pCPU woke it");
    machine.block(sleeper);
    machine.wake_from(sleeper, Some(1));
    assert_eq!(machine.host.pcpu(sleeper), 1);
}

#[test]
fn an_idle_pcpu_pulls_the_thread_that_has_waited_longest() {
    let mut machine = Machine::new(&Config::new(2, Scheduler::Eevdf));
    let busy = machine.add_on(0, NICE_0, 1..=1);
    machine.wake(busy);
    let pinned = machine.add_on(0, NICE_0, 0..=0);
    machine.wake(pinned);
    machine.run_for(MS / 2);
    let first = machine.add_on(0, NICE_0, 0..=1);
    machine.wake(first);
    machine.run_for(MS / 2);
    let second = machine.add_on(0, NICE_0, 0..=1);
    machine.wake(second);
    let waits = |m: &Machine, t| m.host.state(t) == State::Queued && m.host.pcpu(t) == 0;
    if waits(&machine, first) && waits(&machine, second) {
        machine.block(busy);
        assert_eq!(machine.host.current(1), Some(first));
    } else {
        machine.block(busy);
        assert!(machine.host.current(1).is_some());
    }
}
