//! DELAY_DEQUEUE in groups: a VM's part of a pCPU sleeps delayed, or some of its vCPUs do.

use super::machine::{MS, Machine, NICE_0};
use unspin_policy::host::{Config, Scheduler};

fn eevdf(pcpus: u32, tick_ns: u64, slice_ns: u64) -> Config {
    Config { tick_ns, slice_ns, ..Config::new(pcpus, Scheduler::Eevdf) }
}

/// For how long a VM's part of the pCPU stays queued after its second vCPU has fallen asleep, too.
/// The first one to do so makes the VM a buddy. Two heavy threads have earlier deadlines.
fn stays_queued(no_features: u32) -> u64 {
    let mut m = Machine::new(&Config { no_features, ..eevdf(1, MS, 3 * MS) });
    let vm = m.host.group(NICE_0, 0, 0);
    let vcpus = [0; 2].map(|_| m.add(vm, NICE_0));
    let others = [0; 2].map(|_| m.add(0, 2 * NICE_0));
    vcpus.iter().chain(&others).for_each(|thread| m.wake(*thread));
    m.run_for(40 * MS);
    m.run_into_turn(vcpus[0], MS / 2);
    m.block(vcpus[0]);
    assert_eq!(m.host.current(0), Some(vcpus[1]));
    m.run_for(5 * MS / 4);
    m.block(vcpus[1]);
    let asleep = m.now;
    let mean = |m: &Machine| (m.host.vruntime(others[0]) + m.host.vruntime(others[1])) / 2;
    while m.host.queue_mean(others[0]).abs_diff(mean(&m)) > 1 {
        m.run_for(MS / 10);
    }
    m.now - asleep
}

/// As clear_buddies() in dequeue_entity(). A buddy would be picked, and leave, once it is eligible.
#[test]
fn a_delayed_vm_is_nobodys_buddy() {
    let [with, without] = [0, 8].map(stays_queued);
    assert!(with == without && with > 5 * MS, "{with}, {without} without NEXT_BUDDY");
}

/// Another pCPU pulls a vCPU that is owed time while another VM runs, so V rises, and the sleeper
/// becomes eligible. Of equal deadlines, that of the vCPU that was queued before comes first.
#[test]
fn a_delayed_thread_has_no_protected_slice() {
    let mut m = Machine::new(&eevdf(2, MS, 3 * MS));
    m.toggle(1);
    let vm = m.host.group(NICE_0, 0, 0);
    let vcpus = [0, 0, 0, 1, 0].map(|last| m.add_on(vm, NICE_0, 0..=last));
    let other = m.add_on(0, NICE_0, 0..=0);
    vcpus.iter().chain([&other]).for_each(|thread| m.wake(*thread));
    m.run_for(20 * MS);
    m.run_into_turn(vcpus[1], 5 * MS / 2);
    m.block(vcpus[1]);
    assert!(m.host.is_delayed(vcpus[1]) && m.host.current(0) == Some(other));
    m.toggle(1);
    assert!(m.host.current(1) == Some(vcpus[3]) && m.host.is_eligible(vcpus[1]));
    while m.host.current(0) == Some(other) {
        m.run_for(MS / 10);
    }
    assert!(m.host.is_delayed(vcpus[1]));
    assert_eq!(m.host.current(0), Some(vcpus[0]));
}

/// As h_nr_delayed of the root's queue, from which throttle_cfs_rq() takes those of the group.
#[test]
fn delayed_threads_of_a_throttled_group_do_not_count_on_their_pcpu() {
    let mut m = Machine::new(&eevdf(2, MS, 8 * MS));
    m.toggle(1);
    let vm = m.host.group(NICE_0, 10 * MS, 100 * MS);
    let vcpus = [0; 2].map(|_| m.add_on(vm, NICE_0, 0..=0));
    vcpus.iter().for_each(|thread| m.wake(*thread));
    m.greedy(2);
    m.run_into_turn(vcpus[0], MS);
    m.block(vcpus[0]);
    while !m.host.is_throttled(vcpus[0]) {
        m.run_for(MS / 10);
    }
    assert!(m.host.is_delayed(vcpus[0]), "it cannot be picked");
    m.toggle(1);
    assert!(m.host.current(1).is_some(), "one thread runs on pCPU 0, and one waits");
}

/// How long a vCPU waits that has slept for 100 ms, and whose VM runs on another pCPU as well.
fn wait_of_a_wide_vm(no_features: u32) -> u64 {
    let mut m = Machine::new(&Config { no_features, ..eevdf(2, 0, 0) });
    let vms = [0; 2].map(|_| m.host.group(NICE_0, 0, 0));
    let threads =
        [(vms[0], 0), (vms[0], 1), (vms[1], 0)].map(|(vm, pcpu)| m.add_on(vm, NICE_0, pcpu..=pcpu));
    threads.iter().for_each(|thread| m.wake(*thread));
    m.run_into_turn(threads[0], 3 * MS);
    m.block(threads[0]);
    m.run_for(100 * MS);
    m.wake_and_wait(threads[0])
}

/// As update_cfs_group() for a group that becomes empty. With the smallest weight, the debt would
/// stretch over hundreds of milliseconds.
#[test]
fn an_emptied_part_of_a_vm_pays_with_the_weight_that_it_had() {
    let [wait, kept] = [0, 32].map(wait_of_a_wide_vm);
    assert!(wait <= 4 * MS && kept > 4 * MS, "{wait}, {kept} without DELAY_DEQUEUE");
}

#[test]
fn a_pick_that_empties_a_group_goes_on_to_the_next_entity() {
    let mut m = Machine::new(&eevdf(1, MS, 8 * MS));
    let vm = m.host.group(NICE_0, 0, 0);
    let [first, second, other] = [vm, vm, 0].map(|group| m.add(group, NICE_0));
    [first, second, other].iter().for_each(|thread| m.wake(*thread));
    m.run_into_turn(first, 3 * MS);
    m.block(first);
    while m.host.current(0) != Some(second) {
        m.run_for(MS / 10);
    }
    m.run_for(2 * MS);
    m.block(second);
    assert!(m.host.is_delayed(first) && !m.host.is_delayed(second));
    assert_eq!(m.host.current(0), Some(other));
    m.switches.clear();
    while m.host.is_delayed(first) {
        m.run_for(MS / 10);
    }
    assert!(m.switches.is_empty(), "the other one runs on: {:?}", m.switches);
}
