//! Tests that threads are on and off for as long as the formulae of the two schedulers say.

use super::machine::{MS, Machine, SECOND};
use std::collections::BTreeSet;
use unspin_policy::host::{Config, Scheduler};

/// Returns the lengths of a thread's on and off intervals after the first 100 ms, in microseconds.
fn intervals(machine: &Machine, thread: u32) -> [BTreeSet<u64>; 2] {
    let mut lengths = [BTreeSet::new(), BTreeSet::new()];
    let (mut since, mut on) = (None, false);
    for switch in machine.switches.iter().filter(|switch| switch.at >= 100 * MS) {
        let is_on = switch.thread == Some(thread);
        let leaves = on && switch.pcpu == machine.host.pcpu(thread);
        if !is_on && !leaves {
            continue;
        }
        if let Some(since) = since {
            lengths[usize::from(!on)].insert((switch.at - since) / 1_000);
        }
        (since, on) = (Some(switch.at), is_on);
    }
    lengths
}

fn assert_intervals(scheduler: Scheduler, tick_us: u64, threads: u32, on_us: u64, off_us: u64) {
    let config = Config { tick_ns: tick_us * 1_000, ..Config::new(2, scheduler) };
    let mut machine = Machine::new(&config);
    for thread in 0..threads {
        // Threads are pinned, so that balancing does not change their number on a pCPU.
        let pcpu = thread % 2;
        let thread = machine.add_on(0, 1024, pcpu..=pcpu);
        machine.wake(thread);
    }
    machine.run_until(SECOND);
    for thread in 0..threads {
        let found = intervals(&machine, thread);
        let wanted = [BTreeSet::from([on_us]), BTreeSet::from([off_us])];
        assert_eq!(found, wanted, "{scheduler:?}, a tick each {tick_us} us, thread {thread}");
    }
}

/// On 2 pCPUs, the base slice is 0.7 ms * (1 + ilog2(2)) = 1.4 ms. A turn ends at the first tick
/// that does not come before the end of the slice.
#[test]
fn eevdf_switches_at_the_tick_that_finds_the_slice_used_up() {
    assert_intervals(Scheduler::Eevdf, 4_000, 4, 4_000, 4_000);
    assert_intervals(Scheduler::Eevdf, 1_000, 4, 2_000, 2_000);
    assert_intervals(Scheduler::Eevdf, 500, 4, 1_500, 1_500);
    assert_intervals(Scheduler::Eevdf, 500, 8, 1_500, 4_500);
    assert_intervals(Scheduler::Eevdf, 200, 4, 1_400, 1_400);
}

/// On 2 pCPUs, the latency is 6 ms * 2 = 12 ms: half of it for each of two threads, a quarter for
/// each of four. The scheduler preempts a thread at the first tick after it has run for longer.
#[test]
fn cfs_switches_at_the_tick_that_finds_the_part_of_the_latency_exceeded() {
    assert_intervals(Scheduler::Cfs, 4_000, 4, 8_000, 8_000);
    assert_intervals(Scheduler::Cfs, 1_000, 4, 7_000, 7_000);
    assert_intervals(Scheduler::Cfs, 500, 4, 6_500, 6_500);
    assert_intervals(Scheduler::Cfs, 500, 8, 3_500, 10_500);
}

/// The defaults grow with 1 + ilog2(min(pCPUs, 8)).
#[test]
fn slices_grow_with_the_number_of_pcpus_up_to_eight() {
    for (pcpus, slice_us) in [(1, 700), (2, 1_400), (4, 2_100), (8, 2_800), (16, 2_800)] {
        let config = Config { tick_ns: 100_000, ..Config::new(pcpus, Scheduler::Eevdf) };
        let mut machine = Machine::new(&config);
        for _ in 0..2 {
            let thread = machine.add_on(0, 1024, 0..=0);
            machine.wake(thread);
        }
        machine.run_until(SECOND);
        let found = intervals(&machine, 0);
        assert_eq!(found, [BTreeSet::from([slice_us]), BTreeSet::from([slice_us])]);
    }
}
