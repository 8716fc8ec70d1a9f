//! Tests of DELAY_DEQUEUE: a thread that falls asleep in debt stays queued until it has paid.

use super::machine::{MS, Machine, NICE_0, SECOND};
use std::ops::RangeInclusive;
use unspin_policy::host::{Config, Scheduler, State, Yield};

fn eevdf(pcpus: u32) -> Config {
    Config::new(pcpus, Scheduler::Eevdf)
}

/// Returns a machine with two threads on pCPU 0, and the threads. The first always wants to run.
/// The second, which may run on `range`, is asleep and delayed. The other pCPUs are idle.
fn with_delayed(config: &Config, range: RangeInclusive<u32>) -> (Machine, u32, u32) {
    let mut m = Machine::new(config);
    let (greedy, sleeper) = (m.add_on(0, NICE_0, 0..=0), m.add_on(0, NICE_0, range));
    (1..config.pcpus).for_each(|pcpu| m.toggle(pcpu));
    m.wake(sleeper);
    m.wake(greedy);
    m.run_into_turn(sleeper, 3 * MS);
    m.block(sleeper);
    (1..config.pcpus).for_each(|pcpu| m.toggle(pcpu));
    assert!(m.host.is_delayed(sleeper));
    (m, greedy, sleeper)
}

/// Returns V - v of a queued thread.
fn lag(m: &Machine, thread: u32) -> i64 {
    m.host.queue_mean(thread) as i64 - m.host.vruntime(thread) as i64
}

#[test]
fn a_delayed_thread_sleeps_and_counts_in_v_until_it_would_be_picked() {
    let (mut m, greedy, sleeper) = with_delayed(&eevdf(1), 0..=0);
    assert_eq!((m.host.state(sleeper), m.host.current(0)), (State::Blocked, Some(greedy)));
    let (v, mean, ran) = (m.host.vruntime(sleeper), m.host.queue_mean(greedy), m.runtimes());
    let tick = m.host.next().unwrap();
    m.run_until(tick);
    assert!(m.host.is_delayed(sleeper) && lag(&m, sleeper) < 0, "it has not paid yet");
    let half = (m.runtimes()[greedy as usize] - ran[greedy as usize]) / 2;
    assert!((m.host.queue_mean(greedy) - mean).abs_diff(half) <= 1, "V is that of two threads");
    m.run_for(20 * MS);
    assert!(!m.host.is_delayed(sleeper));
    assert_eq!(m.host.vruntime(sleeper), v);
    assert_eq!(m.runtimes()[sleeper as usize], ran[sleeper as usize], "it has not run for that");
    assert_eq!(m.host.queue_mean(greedy), m.host.vruntime(greedy), "V is that of one thread");
}

#[test]
fn a_thread_that_has_had_no_more_than_its_share_is_not_delayed() {
    for scheduler in [Scheduler::Eevdf, Scheduler::Cfs] {
        let mut m = Machine::new(&Config::new(1, scheduler));
        m.greedy(3);
        m.run_for(SECOND);
        let threads = (0..200).filter(|_| {
            m.run_for(MS / 4);
            let current = m.host.current(0).unwrap();
            let [mut host, mut charged] = [(); 2].map(|()| m.host.clone());
            charged.resched(0, m.now);
            let in_debt = !charged.is_eligible(current);
            host.block(current, m.now);
            assert_eq!(host.is_delayed(current), in_debt && scheduler == Scheduler::Eevdf);
            host.is_delayed(current)
        });
        assert_eq!(threads.count() > 50, scheduler == Scheduler::Eevdf);
    }
}

/// Follows requeue_delayed_entity() for a thread without lag.
#[test]
fn a_thread_that_awakes_in_debt_goes_on_where_it_was() {
    let (mut m, _, sleeper) = with_delayed(&eevdf(1), 0..=0);
    let (v, deadline) = (m.host.vruntime(sleeper), m.host.deadline(sleeper));
    m.run_for(MS / 2);
    m.wake(sleeper);
    assert!(!m.host.is_delayed(sleeper) && lag(&m, sleeper) < 0);
    assert_eq!((m.host.vruntime(sleeper), m.host.deadline(sleeper)), (v, deadline));
    assert_eq!(m.host.state(sleeper), State::Queued);
}

/// DELAY_ZERO: a thread earns nothing by sleeping.
#[test]
fn a_delayed_thread_that_is_owed_time_forfeits_it() {
    // The other thread is protected for its slice, so the scheduler does not pick the delayed one.
    let config = Config { tick_ns: MS, slice_ns: 8 * MS, ..eevdf(1) };
    let (mut m, _, sleeper) = with_delayed(&config, 0..=0);
    while lag(&m, sleeper) < MS as i64 {
        let tick = m.host.next().unwrap();
        m.run_until(tick);
        assert!(m.host.is_delayed(sleeper));
    }
    m.wake(sleeper);
    assert!((-1..=1).contains(&lag(&m, sleeper)), "{}", lag(&m, sleeper));
    assert_eq!(m.host.deadline(sleeper), m.host.vruntime(sleeper) + 8 * MS);
}

/// Follows requeue_delayed_entity(), which does not charge the running thread: V is that of the
/// last tick, when the thread was not yet owed anything.
#[test]
fn what_a_delayed_thread_is_owed_since_the_last_tick_does_not_count() {
    let config = Config { tick_ns: MS, slice_ns: 8 * MS, ..eevdf(1) };
    let (mut m, _, sleeper) = with_delayed(&config, 0..=0);
    while lag(&m, sleeper) < -400_000 {
        let tick = m.host.next().unwrap();
        m.run_until(tick);
    }
    let v = m.host.vruntime(sleeper);
    assert!(lag(&m, sleeper) <= 0, "{}", lag(&m, sleeper));
    m.run_for(9 * MS / 10);
    m.wake(sleeper);
    assert!(lag(&m, sleeper) > 0 && m.host.vruntime(sleeper) == v, "{}", lag(&m, sleeper));
}

/// The scheduler picks the thread at a tick; by then it is owed time, and leaves without that time.
#[test]
fn a_delayed_thread_leaves_without_lag() {
    let (mut m, _, sleeper) = with_delayed(&eevdf(1), 0..=0);
    while m.host.is_delayed(sleeper) {
        m.run_for(MS / 10);
    }
    m.wake(sleeper);
    assert!((-1..=1).contains(&lag(&m, sleeper)), "{}", lag(&m, sleeper));
}

/// Follows ttwu_runnable().
#[test]
fn a_delayed_thread_awakes_on_its_own_pcpu() {
    let wakes_on = |slept_ns| {
        let (mut m, _, sleeper) = with_delayed(&eevdf(2), 0..=1);
        for (weight, pcpu) in [(NICE_0, 0), (NICE_0 / 4, 1)] {
            let thread = m.add_on(0, weight, pcpu..=pcpu);
            m.wake(thread);
        }
        m.run_for(slept_ns);
        m.wake_from(sleeper, Some(1));
        m.host.pcpu(sleeper)
    };
    assert_eq!((wakes_on(MS / 2), wakes_on(50 * MS)), (0, 1));
}

#[test]
fn an_idle_pcpu_leaves_delayed_threads_alone() {
    let (mut m, greedy, sleeper) = with_delayed(&eevdf(2), 0..=0);
    let other = m.add_on(0, NICE_0, 0..=1);
    m.wake(other);
    m.block(other);
    assert!(m.host.is_delayed(sleeper) && m.is_idle(1));
    m.block(greedy);
    assert!(!m.host.is_delayed(sleeper) && m.is_idle(0), "nothing is left to run");
    assert_eq!(m.host.next(), None, "an idle host has no ticks");
}

/// The kernel's nr_running counts delayed threads, so yield_to() does not return -ESRCH.
#[test]
fn a_delayed_thread_is_a_competitor_for_yields_and_not_a_target() {
    let yields = |no_features| {
        let mut m = Machine::new(&Config { no_features, ..eevdf(2) });
        let [from, sleeper] = [0; 2].map(|_| m.add_on(0, NICE_0, 0..=0));
        let to = m.add_on(0, NICE_0, 1..=1);
        m.toggle(1);
        [sleeper, from, to].iter().for_each(|thread| m.wake(*thread));
        m.run_into_turn(sleeper, 3 * MS);
        m.block(sleeper);
        assert_eq!(m.yield_to(from, sleeper), Yield::NotQueued);
        m.yield_to(from, to)
    };
    assert_eq!((yields(0), yields(32)), (Yield::Yielded, Yield::Refused));
}

/// Returns how long a VM's only vCPU waits after its sleep if the VM had more than its share of the
/// pCPU.
fn wait_of_a_group(no_features: u32, slept_ns: u64) -> u64 {
    let mut m = Machine::new(&Config { no_features, ..eevdf(1) });
    let threads = [0; 2].map(|_| {
        let group = m.host.group(NICE_0, 0, 0);
        m.add(group, NICE_0)
    });
    threads.iter().for_each(|thread| m.wake(*thread));
    m.run_into_turn(threads[0], 3 * MS);
    m.block(threads[0]);
    assert!(!m.host.is_delayed(threads[0]), "it is alone in its group, so that is delayed");
    m.run_for(slept_ns);
    m.wake_and_wait(threads[0])
}

/// A VM's group entity on a pCPU pays its debt as well, and still has the debt if the VM wakes up
/// before.
#[test]
fn a_group_pays_its_debt_asleep() {
    let [long, short] = [SECOND, MS / 10].map(|slept_ns| wait_of_a_group(0, slept_ns));
    assert!(long <= 4 * MS && short > 4 * MS, "{long}, {short}");
    let kept = wait_of_a_group(32, SECOND);
    assert!(kept > 4 * MS, "{kept} without DELAY_DEQUEUE");
}
