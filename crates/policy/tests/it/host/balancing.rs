//! When busy pCPUs balance, and what moves.

use super::machine::{MS, Machine, NICE_0, SECOND};
use unspin_policy::host::{Config, Scheduler};

/// Slices are so long that a thread that waits does so all the time.
fn machine(pcpus: u32) -> Machine {
    let config = Config::new(pcpus, Scheduler::Eevdf);
    Machine::new(&Config { tick_ns: MS, slice_ns: 400 * MS, ..config })
}

/// When the thread moves to another pCPU, in milliseconds; `None`: not within a second.
fn moves_ms(m: &mut Machine, thread: u32) -> Option<u64> {
    let pcpu = m.host.pcpu(thread);
    while m.host.pcpu(thread) == pcpu {
        if m.now >= SECOND {
            return None;
        }
        let tick = m.host.next().unwrap();
        m.run_until(tick);
    }
    Some(m.now / MS)
}

/// The same for a thread of this weight that awakes at `at` and waits on pCPU 0. A thread of nice 0
/// runs on each pCPU.
fn one_too_many(pcpus: u32, weight: u32, at: u64) -> Option<u64> {
    let mut m = machine(pcpus);
    for pcpu in 0..pcpus {
        let pinned = m.add_on(0, NICE_0, pcpu..=pcpu);
        m.wake(pinned);
    }
    m.run_until(at);
    let thread = m.add(0, weight);
    m.wake(thread);
    assert_eq!(m.host.pcpu(thread), 0);
    moves_ms(&mut m, thread)
}

/// As get_sd_balance_interval(). pCPUs balance at the first tick for the first time. The thread
/// outweighs the imbalance twofold on two pCPUs and fourfold on four, so one attempt or two fail.
#[test]
fn a_busy_pcpu_balances_every_16_ms_times_the_number_of_pcpus_less_a_tick() {
    assert_eq!(one_too_many(2, NICE_0, 0), Some(1 + 31));
    assert_eq!(one_too_many(4, NICE_0, 0), Some(1 + 63 + 63));
}

/// The first attempt finds nothing to do.
#[test]
fn pcpus_that_are_balanced_wait_twice_as_long() {
    assert_eq!(one_too_many(2, NICE_0, 5 * MS), Some(1 + 2 * 31 + 31));
}

/// As imbalance_pct: 1198 are 116.99 % of 1024, and 1200 are 117.2 %.
#[test]
fn an_imbalance_of_up_to_17_percent_is_left_alone() {
    assert_eq!([174, 176].map(|weight| one_too_many(2, weight, 0)), [None, Some(32)]);
}

/// As task_h_load(): a vCPU weighs its part of its VM's weight on that pCPU. The move makes both
/// pCPUs even, so the first attempt succeeds.
#[test]
fn the_vcpus_of_a_vm_move_as_soon_as_threads_would() {
    for is_vm in [false, true] {
        let mut m = machine(2);
        let group = if is_vm { m.host.group(NICE_0, 0, 0) } else { 0 };
        for pcpu in [0, 0, 1] {
            let pinned = m.add_on(group, NICE_0, pcpu..=pcpu);
            m.wake(pinned);
        }
        m.toggle(1);
        let thread = m.add(group, NICE_0);
        m.wake(thread);
        m.toggle(1);
        assert_eq!(m.host.pcpu(thread), 0);
        assert_eq!(moves_ms(&mut m, thread), Some(1), "in a VM: {is_vm}");
    }
}

/// Delayed threads stay on their pCPU here, so the most loaded one has nothing to move.
#[test]
fn a_pcpu_on_which_a_delayed_thread_waits_alone_is_not_the_busiest() {
    let mut m = machine(3);
    let sleeper = m.add_on(0, NICE_0 + 76, 1..=1);
    m.wake(sleeper);
    for pcpu in [1, 2, 0] {
        let pinned = m.add_on(0, NICE_0, pcpu..=pcpu);
        m.wake(pinned);
    }
    m.run_for(MS / 2);
    m.block(sleeper);
    m.toggle(0);
    let thread = m.add(0, NICE_0);
    m.wake(thread);
    m.toggle(0);
    assert_eq!(m.host.pcpu(thread), 2);
    assert_eq!(moves_ms(&mut m, thread), Some(1 + 2 * 47));
    assert!(m.host.is_delayed(sleeper) && m.host.pcpu(thread) == 0);
}
