//! Requests, protected slices and lag, over sleeps, moves and the turns of a VM's vCPUs.

use super::machine::{MS, Machine, NICE_0};
use unspin_policy::host::{Config, Debooster, Host, Scheduler};

fn eevdf(pcpus: u32, tick_ns: u64, slice_ns: u64) -> Config {
    Config { tick_ns, slice_ns, ..Config::new(pcpus, Scheduler::Eevdf) }
}

/// V - v of a thread that is queued.
fn lag(host: &Host, thread: u32) -> i64 {
    host.queue_mean(thread) as i64 - host.vruntime(thread) as i64
}

/// As entity_lag(). A penalty may put a yielder further ahead, until it is placed again.
#[test]
fn a_debt_of_more_than_two_slices_and_a_tick_is_not_kept() {
    for (tick_ns, limit) in [(MS, 1_400_000), (4 * MS, 4_000_000)] {
        let config = Config { debooster: Debooster::Penalty, ..eevdf(1, tick_ns, 0) };
        let mut m = Machine::new(&config);
        m.greedy(4);
        let mut clipped = 0;
        for _ in 0..500 {
            m.run_for(MS / 4);
            let from = m.host.current(0).unwrap();
            let target = m.threads().find(|to| *to != from && !m.host.is_eligible(*to));
            let Some(to) = target else { continue };
            let mut host = m.host.clone();
            host.yield_to(from, to, m.now);
            if lag(&host, from) < -limit {
                host.reweigh(from, 2 * NICE_0);
                let debt = lag(&host, from);
                assert!((2 * debt + limit).abs() < 16, "{debt} of {limit}");
                clipped += 1;
            }
        }
        assert!(clipped > 50, "{clipped} of {limit}");
    }
}

/// As PLACE_REL_DEADLINE and PLACE_LAG. The thread is new, so it has asked for half a slice. It has
/// waited for 1 ms.
#[test]
fn a_thread_that_moves_takes_its_request_and_its_lag_along() {
    let mut m = Machine::new(&eevdf(2, MS, 40 * MS));
    let heavy = m.add_on(0, 4 * NICE_0, 1..=1);
    let pinned = [0; 2].map(|_| m.add_on(0, NICE_0, 0..=0));
    [heavy, pinned[0], pinned[1]].iter().for_each(|thread| m.wake(*thread));
    let mover = m.add(0, NICE_0);
    m.wake(mover);
    assert_eq!(m.host.pcpu(mover), 0);
    m.host.reweigh(heavy, NICE_0);
    let before = m.after_resched(0, MS);
    m.run_until(MS);
    assert_eq!(m.host.pcpu(mover), 1);
    let owed = lag(&before, mover);
    assert!(owed > 300_000 && (lag(&m.host, mover) - owed).abs() < 8, "{owed}");
    assert_eq!(m.host.deadline(mover) - m.host.vruntime(mover), 20 * MS);
}

/// As pick_next_task_fair(), which leaves a group alone where it goes from one of its threads to
/// another. The first slice of the VM is long over, so a new thread preempts it.
#[test]
fn a_vm_is_not_protected_again_as_its_vcpus_take_turns() {
    for later in 0..9 {
        let mut m = Machine::new(&eevdf(1, MS, 2 * MS));
        let vm = m.host.group(NICE_0, 0, 0);
        let vcpus = [0; 2].map(|_| m.add(vm, NICE_0));
        vcpus.iter().for_each(|thread| m.wake(*thread));
        m.run_until(20 * MS + later * MS / 10);
        assert_eq!(m.switches.last().map(|switch| switch.at), Some(20 * MS));
        let new = m.add(0, NICE_0);
        m.wake(new);
        assert_eq!(m.host.current(0), Some(new), "{later}");
    }
}

/// As DEQUEUE_SLEEP for the parents in dequeue_entities(). With the rest of its last request, it
/// would preempt.
#[test]
fn a_vm_that_awakes_asks_for_a_whole_slice() {
    for later in 1..7 {
        let mut m = Machine::new(&Config { no_features: 1, ..eevdf(1, MS, 8 * MS) });
        let vm = m.host.group(NICE_0, 0, 0);
        let [sleeper, other] = [vm, 0].map(|group| m.add(group, NICE_0));
        m.wake(sleeper);
        m.run_for(6 * MS);
        m.block(sleeper);
        m.wake(other);
        m.run_for(94 * MS - MS / 4 + later * MS / 2);
        m.wake(sleeper);
        assert_eq!(m.host.current(0), Some(other), "{later}");
    }
}

/// As clear_buddies() in update_curr(). At the end of its slice, the VM has had its share exactly,
/// so it is eligible, as the other thread is.
#[test]
fn a_vm_whose_slice_is_over_is_a_buddy_no_longer() {
    let mut m = Machine::new(&eevdf(1, 0, 0));
    let vm = m.host.group(NICE_0, 0, 0);
    let [other, first, second] = [0, vm, vm].map(|group| m.add(group, NICE_0));
    [other, first, second].iter().for_each(|thread| m.wake(*thread));
    m.run_for(10 * MS);
    m.run_into_turn(second, MS);
    m.block(second);
    assert!(!m.host.is_delayed(second) && m.host.current(0) == Some(first));
    let tick = m.host.next().unwrap();
    m.run_until(tick);
    assert_eq!(m.host.current(0), Some(other));
}
