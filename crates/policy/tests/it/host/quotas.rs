//! Tests of quotas (cpu.max).

use super::machine::{MS, Machine, NICE_0, SECOND};
use proptest::prelude::*;
use unspin_policy::host::{Config, Scheduler, Yield};

/// Checks that a group runs for its quota and no longer. On each pCPU it may exceed the quota by a
/// tick that comes late, and by a slice that the pCPU took before.
fn keeps_its_quota(scheduler: Scheduler, pcpus: u32, percent: u64, neighbour: bool) {
    let mut machine = Machine::new(&Config::new(pcpus, scheduler));
    let quota = 20 * MS * u64::from(pcpus) * percent / 100;
    let group = machine.host.group(NICE_0, quota, 20 * MS);
    for _ in 0..pcpus {
        let thread = machine.add(group, NICE_0);
        machine.wake(thread);
    }
    let other = machine.host.group(NICE_0, 0, 0);
    for _ in 0..pcpus * u32::from(neighbour) {
        let thread = machine.add(other, NICE_0);
        machine.wake(thread);
    }
    let ran = machine.shares_of(SECOND);
    let used: u64 = ran[..pcpus as usize].iter().sum();
    let most = 50 * quota + u64::from(pcpus) * 9 * MS;
    assert!(used <= most, "{used} of {}", 50 * quota);
    let fair = u64::from(pcpus) * SECOND * if neighbour { 45 } else { 100 } / 100;
    let least = (50 * quota).min(fair) * 95 / 100;
    assert!(used >= least, "{used} of {}", 50 * quota);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_group_keeps_its_quota(
        cfs in any::<bool>(), pcpus in 1u32..=4, percent in 10u64..=90, neighbour in any::<bool>(),
    ) {
        let scheduler = if cfs { Scheduler::Cfs } else { Scheduler::Eevdf };
        keeps_its_quota(scheduler, pcpus, percent, neighbour);
    }
}

/// A case that proptest once found.
#[test]
fn a_third_of_two_pcpus_beside_a_neighbour_is_kept() {
    keeps_its_quota(Scheduler::Eevdf, 2, 36, true);
}

#[test]
fn a_throttled_group_leaves_the_pcpu_to_others_until_its_next_period() {
    let mut machine = Machine::new(&Config::new(1, Scheduler::Eevdf));
    let group = machine.host.group(NICE_0, 10 * MS, 100 * MS);
    let limited = machine.add(group, NICE_0);
    machine.wake(limited);
    machine.run_until(50 * MS);
    assert!(machine.host.is_throttled(limited) && machine.is_idle(0));
    let used = machine.host.runtime(limited, machine.now);
    assert!((10 * MS..14 * MS).contains(&used), "{used}");
    let other = machine.greedy(1)[0];
    assert_eq!(machine.host.current(0), Some(other));
    assert_eq!(machine.yield_to(other, limited), Yield::Refused, "it is alone");
    machine.greedy(1);
    let current = machine.host.current(0).unwrap();
    assert_eq!(machine.yield_to(current, limited), Yield::Throttled);
    machine.run_until(99 * MS);
    assert_eq!(machine.host.runtime(limited, machine.now), used);
    machine.run_until(105 * MS);
    assert!(!machine.host.is_throttled(limited));
}

#[test]
fn a_group_that_wakes_up_late_has_the_quota_of_that_period() {
    let mut machine = Machine::new(&Config::new(1, Scheduler::Cfs));
    let group = machine.host.group(NICE_0, 10 * MS, 100 * MS);
    let limited = machine.add(group, NICE_0);
    machine.wake(limited);
    machine.run_until(50 * MS);
    machine.block(limited);
    assert_eq!(machine.host.next(), None, "nobody needs a refill");
    machine.run_until(250 * MS);
    machine.wake(limited);
    assert_eq!(machine.host.current(0), Some(limited));
    // The group pays for its overrun in the first period.
    let used = machine.shares_of(40 * MS)[0];
    assert!((6 * MS..14 * MS).contains(&used), "{used}");
}

#[test]
fn a_period_inherits_nothing_from_the_last_one() {
    let mut machine = Machine::new(&Config::new(1, Scheduler::Eevdf));
    let groups = [machine.host.group(NICE_0, 15 * MS, 20 * MS), machine.host.group(NICE_0, 0, 0)];
    let [limited, other] = groups.map(|group| machine.add(group, NICE_0));
    machine.wake(limited);
    machine.wake(other);
    let half = machine.shares_of(400 * MS)[limited as usize];
    assert!((190 * MS..210 * MS).contains(&half), "{half}");
    machine.block(other);
    let used = machine.shares_of(60 * MS)[limited as usize];
    assert!((40 * MS..54 * MS).contains(&used), "{used}");
}

#[test]
fn a_pcpu_gives_back_the_quota_that_it_no_longer_needs() {
    let config = Config { tick_ns: MS, ..Config::new(2, Scheduler::Eevdf) };
    let mut machine = Machine::new(&config);
    let group = machine.host.group(NICE_0, 10 * MS, 100 * MS);
    let [first, second] = [0, 1].map(|pcpu| machine.add_on(group, NICE_0, pcpu..=pcpu));
    machine.wake(first);
    machine.run_for(MS);
    machine.block(first);
    machine.wake(second);
    // Of the 5 ms of quota that pCPU 0 took, 1 ms is used and 1 ms stays there.
    let used = machine.shares_of(50 * MS)[second as usize];
    assert!((8 * MS..=9 * MS).contains(&used), "{used}");
}

/// Periods go on where nobody runs, as hrtimer_forward() keeps them: the one in which a group wakes
/// up is short.
#[test]
fn periods_do_not_begin_when_a_group_wakes_up() {
    let mut machine = Machine::new(&Config::new(1, Scheduler::Eevdf));
    let group = machine.host.group(NICE_0, 10 * MS, 100 * MS);
    let limited = machine.add(group, NICE_0);
    machine.run_until(250 * MS);
    machine.wake(limited);
    machine.run_until(299 * MS);
    assert!(machine.host.is_throttled(limited));
    machine.run_until(301 * MS);
    assert_eq!(machine.host.current(0), Some(limited));
}

/// As throttled_lb_pair(), which looks at both pCPUs.
#[test]
fn no_thread_is_pulled_to_a_pcpu_where_its_group_is_throttled() {
    let config = Config { tick_ns: MS, ..Config::new(2, Scheduler::Eevdf) };
    let mut machine = Machine::new(&config);
    let group = machine.host.group(NICE_0, 10 * MS, 100 * MS);
    let early = machine.add_on(group, NICE_0, 1..=1);
    machine.wake(early);
    machine.run_for(3 * MS);
    let [late, free] = [0, 1].map(|last| machine.add_on(group, NICE_0, 0..=last));
    machine.wake(late);
    machine.wake(free);
    while !machine.host.is_throttled(early) {
        machine.run_for(MS / 10);
    }
    assert!(machine.is_idle(1) && !machine.host.is_throttled(late));
    assert_eq!(machine.host.pcpu(free), 0);
}

/// The idle pCPU has kept 1 ms of the group's quota.
#[test]
fn no_thread_is_pulled_from_a_throttled_queue() {
    let config = Config { tick_ns: MS, ..Config::new(2, Scheduler::Eevdf) };
    let mut machine = Machine::new(&config);
    let group = machine.host.group(NICE_0, 6 * MS, 100 * MS);
    let early = machine.add_on(group, NICE_0, 1..=1);
    machine.wake(early);
    machine.run_for(MS);
    machine.block(early);
    machine.toggle(1);
    let limited = [0; 2].map(|_| machine.add(group, NICE_0));
    let pinned = [0; 2].map(|_| machine.add_on(0, NICE_0, 0..=0));
    limited.iter().chain(&pinned).for_each(|thread| machine.wake(*thread));
    while !machine.host.is_throttled_on(limited[0], 0) {
        machine.run_for(MS / 10);
    }
    machine.toggle(1);
    assert!(machine.is_idle(1) && machine.host.is_throttled_on(limited[0], 0));
    assert_eq!(limited.map(|thread| machine.host.pcpu(thread)), [0, 0]);
}
