//! Tests of where a thread wakes up, and whether it preempts.

use super::machine::{MS, Machine, NICE_0};
use unspin_policy::host::{Config, Scheduler, State};

fn eevdf(pcpus: u32) -> Config {
    Config::new(pcpus, Scheduler::Eevdf)
}

/// Returns how long a thread waits after a long sleep, on a pCPU with a greedy thread.
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
    let preempts = |no_features: u32, slept_ns: u64| {
        let config = Config { no_features, slice_ns: 3 * MS, ..eevdf(1) };
        let mut machine = Machine::new(&config);
        machine.greedy(3);
        let lags = |m: &Machine, t: u32| {
            let lag = m.host.queue_mean(t) as i64 - m.host.vruntime(t) as i64;
            m.host.state(t) == State::Queued && lag > MS as i64
        };
        let sleeper = loop {
            machine.run_for(MS);
            if let Some(thread) = machine.threads().find(|thread| lags(&machine, *thread)) {
                break thread;
            }
        };
        machine.block(sleeper);
        machine.run_for(slept_ns);
        machine.wake(sleeper);
        machine.host.current(0) == Some(sleeper)
    };
    let often =
        |no_features| (0..40).filter(|i| preempts(no_features, 50 * MS + i * MS / 4)).count();
    assert!(often(1) > 10, "RUN_TO_PARITY is off: {}", often(1));
    // A wake-up may also find a slice used up; this ends the slice without any preemption.
    assert!(often(1 | 2) < often(1) / 2 + 1, "WAKEUP_PREEMPTION is off: {}", often(1 | 2));
}

/// A new thread's first deadline is half a slice away, so it is earlier than that of a current
/// thread that has just begun its slice.
#[test]
fn a_slice_is_protected_from_new_threads_by_run_to_parity() {
    let preempts = |no_features: u32, ran_ns: u64| {
        let config = Config { no_features, tick_ns: MS, slice_ns: 8 * MS, ..eevdf(1) };
        let mut machine = Machine::new(&config);
        machine.greedy(2);
        machine.run_for(ran_ns);
        let new = machine.add(0, NICE_0);
        machine.wake(new);
        machine.host.current(0) == Some(new)
    };
    let often = |no_features| (0..64).filter(|i| preempts(no_features, i * MS / 2)).count();
    assert!(often(1) > often(0), "{} and {}", often(1), often(0));
}

/// Follows did_preempt_short(): a thread that goes on after its slice has no protection. Once it
/// has had more than its share, the next charge ends its turn. Here that is a wake-up that would
/// not preempt by itself.
#[test]
fn a_thread_that_overstays_its_slice_leaves_at_the_next_charge() {
    let leaves = |no_features: u32| {
        let config = Config { no_features, tick_ns: MS, slice_ns: 2 * MS, ..eevdf(1) };
        let mut machine = Machine::new(&config);
        let [heavy, light, late] = [4 * NICE_0, NICE_0, 15].map(|weight| machine.add(0, weight));
        machine.wake(heavy);
        machine.wake(light);
        let mut left = 0;
        for _ in 0..1_000 {
            machine.run_for(MS / 10);
            let mut host = machine.host.clone();
            host.wake(late, None, machine.now);
            if host.current(0) == Some(heavy) && host.need_resched(0) {
                left += u32::from(host.resched(0, machine.now) == Some(light));
            }
        }
        left
    };
    let (with, without) = (leaves(0), leaves(64));
    assert!(with > 50 && without == 0, "{with}, {without}");
}

#[test]
fn a_thread_wakes_up_where_it_ran_or_on_an_idle_pcpu() {
    let mut machine = Machine::new(&eevdf(4));
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
    assert_eq!(machine.host.pcpu(threads[0]), 1, "the next idle one after its own");
}

#[test]
fn a_thread_wakes_up_on_the_less_loaded_of_its_own_and_the_wakers_pcpu() {
    let mut machine = Machine::new(&eevdf(2));
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
    let mut machine = Machine::new(&Config::new(2, Scheduler::Cfs));
    let busy = machine.add_on(0, 4 * NICE_0, 1..=1);
    machine.wake(busy);
    let pinned = machine.add_on(0, NICE_0, 0..=0);
    machine.wake(pinned);
    machine.run_for(MS / 2);
    let first = machine.add_on(0, NICE_0, 0..=1);
    machine.wake(first);
    machine.run_for(MS / 2);
    let second = machine.add_on(0, NICE_0, 0..=1);
    machine.wake(second);
    assert_eq!((machine.host.pcpu(first), machine.host.pcpu(second)), (0, 0));
    machine.block(busy);
    assert_eq!(machine.host.current(1), Some(first));
}

#[test]
fn an_idle_pcpu_pulls_from_the_one_with_most_to_run() {
    let mut machine = Machine::new(&eevdf(3));
    let busy = machine.add_on(0, 16 * NICE_0, 1..=1);
    for (weight, range) in
        [(NICE_0, 0..=0), (NICE_0, 2..=2), (NICE_0, 0..=1), (NICE_0, 1..=2), (NICE_0, 1..=2)]
    {
        if range == (0..=0) {
            machine.wake(busy);
        }
        let thread = machine.add_on(0, weight, range);
        machine.wake(thread);
    }
    machine.run_for(MS);
    assert_eq!([3, 4, 5].map(|thread| machine.host.pcpu(thread)), [0, 2, 2]);
    machine.block(busy);
    let pulled = machine.host.current(1).unwrap();
    assert!(pulled == 4 || pulled == 5, "{pulled}");
}
