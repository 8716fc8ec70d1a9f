//! Tests that shares of time match weights.

use super::machine::{MS, Machine, NICE_0, SECOND, Switch};
use proptest::prelude::*;
use unspin_policy::host::{Config, Scheduler};

/// How far a thread may be from its share after a second, as a fraction of that second.
const TOLERANCE: f64 = 0.02;

fn schedulers() -> impl Strategy<Value = Scheduler> {
    prop_oneof![Just(Scheduler::Eevdf), Just(Scheduler::Cfs)]
}

fn assert_shares(ran: &[u64], wanted: &[f64], tolerance: f64) {
    let all: f64 = ran.iter().sum::<u64>() as f64;
    let sum: f64 = wanted.iter().sum();
    for (thread, (ran, wanted)) in ran.iter().zip(wanted).enumerate() {
        let off = *ran as f64 / SECOND as f64 - wanted / sum * all / SECOND as f64;
        let details = format!("thread {thread} ran {ran} of {all}, wanted {wanted} of {sum}");
        assert!(off.abs() <= tolerance, "{details}");
    }
}

/// Runs a VM of each weight, with a vCPU on each pCPU, and checks their shares.
fn vms_divide_the_host(scheduler: Scheduler, pcpus: u32, weights: &[u32]) {
    let mut machine = Machine::new(&Config::new(pcpus, scheduler));
    for weight in weights {
        let group = machine.host.group(*weight, 0, 0);
        for pcpu in 0..pcpus {
            let thread = machine.add_on(group, NICE_0, pcpu..=pcpu);
            machine.wake(thread);
        }
    }
    let ran = machine.shares_of(SECOND);
    let vms: Vec<u64> = ran.chunks(pcpus as usize).map(|vcpus| vcpus.iter().sum()).collect();
    let wanted: Vec<f64> = weights.iter().map(|weight| f64::from(*weight)).collect();
    assert_shares(&vms, &wanted, TOLERANCE * f64::from(pcpus));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn one_pcpu_divides_its_time_by_weight(
        scheduler in schedulers(),
        weights in prop::collection::vec(335u32..4000, 2..=8),
    ) {
        let mut machine = Machine::new(&Config::new(1, scheduler));
        for weight in &weights {
            let thread = machine.add(0, *weight);
            machine.wake(thread);
        }
        let ran = machine.shares_of(SECOND);
        let wanted: Vec<f64> = weights.iter().map(|weight| f64::from(*weight)).collect();
        assert_shares(&ran, &wanted, TOLERANCE);
        prop_assert_eq!(ran.iter().sum::<u64>(), SECOND);
    }

    #[test]
    fn eevdf_runs_the_eligible_thread_with_the_earliest_deadline(
        weights in prop::collection::vec(335u32..4000, 2..=8), tick in MS / 4..4 * MS,
    ) {
        let config = Config { tick_ns: tick, ..Config::new(1, Scheduler::Eevdf) };
        let mut machine = Machine::new(&config);
        for weight in &weights {
            let thread = machine.add(0, *weight);
            machine.wake(thread);
        }
        while machine.now < SECOND / 2 {
            let switches = machine.switches.len();
            let next = machine.host.next().unwrap();
            machine.run_until(next);
            if machine.switches.len() > switches {
                let current = machine.host.current(0).unwrap();
                prop_assert!(machine.host.is_eligible(current));
                let eligible = machine.threads().filter(|thread| machine.host.is_eligible(*thread));
                let earliest = eligible.map(|thread| machine.host.deadline(thread)).min();
                prop_assert_eq!(Some(machine.host.deadline(current)), earliest);
            }
        }
    }

    #[test]
    fn pcpus_divide_their_time_evenly_where_it_comes_out_even(
        scheduler in schedulers(), pcpus in 1u32..=4, each in 1u32..=4,
    ) {
        let mut machine = Machine::new(&Config::new(pcpus, scheduler));
        machine.greedy(pcpus * each);
        let ran = machine.shares_of(SECOND);
        assert_shares(&ran, &vec![1.0; ran.len()], TOLERANCE);
        prop_assert_eq!(ran.iter().sum::<u64>(), u64::from(pcpus) * SECOND);
    }

    /// Each VM has a vCPU on each pCPU. Shares deviate further if balancing leaves two vCPUs of one
    /// VM on a pCPU.
    #[test]
    fn vms_divide_the_host_by_their_groups_weights(
        scheduler in schedulers(),
        pcpus in 1u32..=4,
        weights in prop::collection::vec(512u32..2048, 2..=3),
    ) {
        vms_divide_the_host(scheduler, pcpus, &weights);
    }

    #[test]
    fn equal_vms_get_equal_time(
        scheduler in schedulers(), pcpus in 1u32..=4, vms in 2u32..=3,
    ) {
        let mut machine = Machine::new(&Config::new(pcpus, scheduler));
        for _ in 0..vms {
            let group = machine.host.group(NICE_0, 0, 0);
            for _ in 0..pcpus {
                let thread = machine.add(group, NICE_0);
                machine.wake(thread);
            }
        }
        let ran = machine.shares_of(SECOND);
        let ran: Vec<u64> = ran.chunks(pcpus as usize).map(|vcpus| vcpus.iter().sum()).collect();
        assert_shares(&ran, &vec![1.0; vms as usize], TOLERANCE * f64::from(pcpus));
    }

    #[test]
    fn a_vm_gets_no_more_for_having_more_vcpus(
        scheduler in schedulers(), vcpus in 2u32..=6,
    ) {
        let mut machine = Machine::new(&Config::new(1, scheduler));
        let groups = [machine.host.group(NICE_0, 0, 0), machine.host.group(NICE_0, 0, 0)];
        let first = machine.add(groups[0], NICE_0);
        machine.wake(first);
        for _ in 0..vcpus {
            let thread = machine.add(groups[1], NICE_0);
            machine.wake(thread);
        }
        let ran = machine.shares_of(SECOND);
        assert_shares(&[ran[0], ran[1..].iter().sum()], &[1.0, 1.0], TOLERANCE);
    }
}

/// A case that proptest once found.
#[test]
fn two_vms_with_a_vcpu_on_each_of_three_pcpus_divide_them() {
    vms_divide_the_host(Scheduler::Eevdf, 3, &[1399, 1196]);
}

/// As in the kernel, balancing takes its time if the threads cannot be divided evenly.
#[test]
fn three_threads_on_two_pcpus_take_turns_in_the_long_run() {
    for scheduler in [Scheduler::Eevdf, Scheduler::Cfs] {
        let mut machine = Machine::new(&Config::new(2, scheduler));
        machine.greedy(3);
        let ran = machine.shares_of(20 * SECOND);
        for thread in &ran {
            let share = *thread as f64 / (20 * SECOND) as f64;
            assert!((0.60..0.76).contains(&share), "{scheduler:?}: {ran:?}");
        }
    }
}

/// Returns how long a thread waits after a long sleep if it had just had more than its share. The
/// function checks that the thread has its share afterwards.
fn wait_after_a_sleep(scheduler: Scheduler, no_features: u32) -> u64 {
    let mut machine = Machine::new(&Config { no_features, ..Config::new(1, scheduler) });
    let sleeper = machine.greedy(3)[0];
    machine.run_for(SECOND);
    machine.run_into_turn(sleeper, 3 * MS);
    machine.block(sleeper);
    machine.run_for(10 * SECOND);
    machine.wake(sleeper);
    let woken = machine.now;
    let ran = machine.shares_of(SECOND);
    assert_shares(&ran, &[1.0; 3], TOLERANCE);
    let on = |switch: &&Switch| switch.at >= woken && switch.thread == Some(sleeper);
    machine.switches.iter().find(on).unwrap().at - woken
}

/// A sleeping thread keeps neither a claim on the time that it has missed nor a debt.
#[test]
fn a_sleeper_gets_its_share_after_its_sleep() {
    let wait = wait_after_a_sleep(Scheduler::Eevdf, 0);
    assert!(wait <= 4 * MS, "{wait}");
    assert_eq!(wait_after_a_sleep(Scheduler::Cfs, 0), 0);
    let wait = wait_after_a_sleep(Scheduler::Eevdf, 32);
    assert!(wait > 8 * MS, "{wait}: the debt is kept without DELAY_DEQUEUE");
}

/// reweight_entity() keeps lag and request in real time.
#[test]
fn a_new_weight_keeps_the_weighted_lag() {
    for weight in [256, 512, 1500, 4096] {
        let mut machine = Machine::new(&Config::new(1, Scheduler::Eevdf));
        machine.greedy(3);
        machine.run_for(4 * MS);
        let lag = |m: &Machine| m.host.queue_mean(2) as i64 - m.host.vruntime(2) as i64;
        let request = |m: &Machine| (m.host.deadline(2) - m.host.vruntime(2)) as i64;
        let (before, asked) = (lag(&machine) * 1024, request(&machine) * 1024);
        assert!(before > 1024 * MS as i64);
        machine.host.reweigh(2, weight);
        let weight = i64::from(weight);
        assert!((lag(&machine) * weight - before).abs() < 8 * weight + 8 * 1024, "{weight}");
        assert!((request(&machine) * weight - asked).abs() < 8 * weight, "{weight}");
    }
}

/// The group's entity on each pCPU has the fraction of the weight that the group's load there is of
/// its whole load.
#[test]
fn a_groups_weight_is_divided_over_the_pcpus() {
    for scheduler in [Scheduler::Eevdf, Scheduler::Cfs] {
        let mut machine = Machine::new(&Config::new(2, scheduler));
        let group = machine.host.group(NICE_0, 0, 0);
        for (group, pcpu) in [(group, 0), (group, 0), (group, 0), (group, 1), (0, 0), (0, 1)] {
            let thread = machine.add_on(group, NICE_0, pcpu..=pcpu);
            machine.wake(thread);
        }
        // The first tick of each pCPU sets the weight of the group's entity.
        machine.run_for(100 * MS);
        let ran = machine.shares_of(2 * SECOND);
        let share = |ran: u64| ran as f64 / (2 * SECOND) as f64;
        let (first, second) = (share(ran[..3].iter().sum()), share(ran[3]));
        assert!((first - 0.75 / 1.75).abs() < TOLERANCE, "{scheduler:?}: {ran:?}");
        assert!((second - 0.25 / 1.25).abs() < TOLERANCE, "{scheduler:?}: {ran:?}");
    }
}

/// The virtual times of two pCPUs are unrelated.
#[test]
fn a_thread_takes_no_debt_to_another_pcpu() {
    for scheduler in [Scheduler::Eevdf, Scheduler::Cfs] {
        let mut machine = Machine::new(&Config::new(2, scheduler));
        machine.toggle(1);
        let mover = machine.add(0, NICE_0);
        machine.wake(mover);
        machine.run_for(SECOND);
        machine.toggle(1);
        machine.block(mover);
        for (weight, pcpu) in [(4 * NICE_0, 0), (NICE_0, 1)] {
            let thread = machine.add_on(0, weight, pcpu..=pcpu);
            machine.wake(thread);
        }
        machine.wake_from(mover, Some(1));
        assert_eq!(machine.host.pcpu(mover), 1);
        let ran = machine.shares_of(SECOND / 4)[mover as usize];
        assert!(ran > SECOND / 10, "{scheduler:?}: {ran}");
    }
}

/// Returns the percentage of the cases in which a thread of a group of two falls asleep and its
/// pCPU goes to the other thread of the group. One thread of each further group competes with them.
fn keeps_its_turn(scheduler: Scheduler, no_features: u32, others: &[u32]) -> usize {
    let config = Config { no_features, tick_ns: MS, ..Config::new(1, scheduler) };
    let mut machine = Machine::new(&config);
    let group = machine.host.group(NICE_0, 0, 0);
    let mut groups = vec![group, group];
    groups.extend(others.iter().map(|weight| machine.host.group(*weight, 0, 0)));
    for group in groups {
        let thread = machine.add(group, NICE_0);
        machine.wake(thread);
    }
    let (mut all, mut kept) = (0, 0);
    for _ in 0..1_000 {
        machine.run_for(MS / 10);
        let Some(current) = machine.host.current(0).filter(|thread| *thread < 2) else { continue };
        let mut host = machine.host.clone();
        host.block(current, machine.now);
        all += 1;
        kept += usize::from(host.resched(0, machine.now) == Some(1 - current));
    }
    assert!(all > 150, "{all}");
    kept * 100 / all
}

/// Follows set_next_buddy() in dequeue_task_fair(): another thread of the group goes on, unless the
/// group has had far more than its share.
#[test]
fn a_group_mostly_keeps_its_turn_when_one_of_its_threads_sleeps() {
    let kept = keeps_its_turn(Scheduler::Cfs, 0, &[4 * NICE_0]);
    assert!(kept > 75, "{kept}");
}

/// EEVDF honours a buddy only if it is eligible. RUN_TO_PARITY also keeps the group on, so the
/// buddy alone decides only without it.
#[test]
fn an_eligible_group_keeps_its_turn_when_one_of_its_threads_sleeps() {
    let kept = [1, 1 | 8].map(|missing| keeps_its_turn(Scheduler::Eevdf, missing, &[NICE_0; 2]));
    // A thread that has had more than its share stays queued, and leaves its group no buddy.
    assert!(kept[0] > 25 && kept[1] < 10, "{kept:?} with and without NEXT_BUDDY");
}
