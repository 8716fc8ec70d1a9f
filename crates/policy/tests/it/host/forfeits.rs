//! What a yield costs the yielder, and whom it reaches.

use super::machine::{MS, Machine, NICE_0};
use unspin_policy::host::{Config, Debooster, Host, Scheduler, State, Yield};

/// Threads of nice 0 on one pCPU.
fn machine(count: u32, no_features: u32, debooster: Debooster) -> Machine {
    let config = Config::new(1, Scheduler::Eevdf);
    let mut m = Machine::new(&Config { no_features, debooster, tick_ns: MS, ..config });
    m.greedy(count);
    m.run_for(20 * MS);
    m
}

/// Virtual time and deadline.
fn request(host: &Host, thread: u32) -> (u64, u64) {
    (host.vruntime(thread), host.deadline(thread))
}

/// What is left of the requests of four threads.
fn rests(host: &Host) -> [u64; 4] {
    [0, 1, 2, 3].map(|thread| host.deadline(thread) - host.vruntime(thread))
}

/// As yield_task_fair(): otherwise a debt grows by a slice with each of many yields.
#[test]
fn a_yielder_that_is_not_eligible_forfeits_nothing() {
    let mut m = machine(4, 0, Debooster::Off);
    let mut ineligible = 0;
    for _ in 0..200 {
        m.run_for(MS / 10);
        let from = m.host.current(0).unwrap();
        let (charged, mut host) = (m.after_resched(0, m.now), m.host.clone());
        host.yield_now(from, m.now);
        if !charged.is_eligible(from) {
            assert_eq!(request(&host, from), request(&charged, from));
            ineligible += 1;
        }
    }
    assert!(ineligible > 50, "{ineligible}");
}

#[test]
fn without_a_forfeit_a_yield_puts_the_deadline_off_by_a_slice() {
    let mut m = machine(2, 16, Debooster::Off);
    for _ in 0..100 {
        m.run_for(MS / 10);
        let from = m.host.current(0).unwrap();
        let (v, deadline) = request(&m.after_resched(0, m.now), from);
        let mut host = m.host.clone();
        host.yield_now(from, m.now);
        assert_eq!(request(&host, from), (v, deadline + 700_000));
    }
}

/// As yield_task_fair() with nr_running 1.
#[test]
fn a_yielder_that_is_alone_on_its_pcpu_forfeits_nothing() {
    let mut m = Machine::new(&Config::new(2, Scheduler::Eevdf));
    let [from, running, to] = [0, 1, 1].map(|pcpu| m.add_on(0, NICE_0, pcpu..=pcpu));
    [from, running, to].iter().for_each(|thread| m.wake(*thread));
    m.run_for(MS / 2);
    let wanted = (MS / 2, m.host.deadline(from));
    assert_eq!(m.yield_to(from, to), Yield::Yielded);
    assert_eq!(request(&m.host, from), wanted);
    m.yield_now(from);
    assert_eq!(request(&m.host, from), wanted);
}

/// Virtual times of all threads after each of many yields to another pCPU, and how many of the
/// targets were not eligible.
fn yields_across(debooster: Debooster) -> (Vec<u64>, u64) {
    let config = Config { debooster, tick_ns: MS, ..Config::new(2, Scheduler::Eevdf) };
    let mut m = Machine::new(&config);
    let threads = [0, 1, 0, 1, 0, 1].map(|pcpu| m.add_on(0, NICE_0, pcpu..=pcpu));
    threads.iter().for_each(|thread| m.wake(*thread));
    let (mut vruntimes, mut refused) = (Vec::new(), 0);
    for _ in 0..50 {
        m.run_for(MS / 5);
        let from = m.host.current(0).unwrap();
        for to in [1, 3, 5].into_iter().filter(|to| m.host.state(*to) == State::Queued) {
            let mut host = m.host.clone();
            assert_eq!(host.yield_to(from, to, m.now), Yield::Yielded);
            vruntimes.extend(m.threads().map(|thread| host.vruntime(thread)));
            refused += host.gifts().refused;
        }
    }
    (vruntimes, refused)
}

#[test]
fn no_gift_crosses_pcpus() {
    let (off, refused) = yields_across(Debooster::Off);
    assert!(refused > 10, "{refused}");
    for debooster in [Debooster::Penalty, Debooster::Transfer, Debooster::Credit] {
        assert!(yields_across(debooster).0 == off, "{debooster:?}");
    }
}

/// Deadlines move with virtual times, so a gift is worth lag, not a new request.
#[test]
fn a_gift_leaves_requests_as_they_are() {
    let mut m = machine(4, 0, Debooster::Transfer);
    let mut given = 0;
    for _ in 0..100 {
        m.run_for(MS / 10);
        let from = m.host.current(0).unwrap();
        for to in m.threads().filter(|to| *to != from && !m.host.is_eligible(*to)) {
            let [mut gift, mut credit] = [(); 2].map(|()| m.host.clone());
            gift.gift(from, to, MS / 2);
            credit.credit(to);
            for host in [gift, credit] {
                assert!(host.vruntime(to) < m.host.vruntime(to));
                assert_eq!(rests(&host), rests(&m.host));
            }
            given += 1;
        }
    }
    assert!(given > 50, "{given}");
}

/// The same for one that forfeits nothing, so that it pays the penalty alone.
#[test]
fn a_penalty_leaves_requests_as_they_are() {
    let mut m = machine(4, 0, Debooster::Penalty);
    let mut paid = 0;
    for _ in 0..200 {
        m.run_for(MS / 10);
        let from = m.host.current(0).unwrap();
        let charged = m.after_resched(0, m.now);
        for to in m.threads().filter(|to| *to != from && !charged.is_eligible(*to)) {
            let mut host = m.host.clone();
            host.yield_to(from, to, m.now);
            if !charged.is_eligible(from) {
                assert!(host.vruntime(from) > charged.vruntime(from));
                assert_eq!(rests(&host), rests(&charged));
                paid += 1;
            }
        }
    }
    assert!(paid > 20, "{paid}");
}

/// Whether a VM's vCPU runs next on its pCPU, where two other threads have earlier deadlines, after
/// a yield from another pCPU.
fn runs_next(no_features: u32) -> bool {
    let config = Config { no_features, ..Config::new(2, Scheduler::Eevdf) };
    let mut m = Machine::new(&config);
    let vm = m.host.group(NICE_0, 0, 0);
    let [from, to] = [0, 1].map(|pcpu| m.add_on(vm, NICE_0, pcpu..=pcpu));
    let others = [0; 2].map(|_| m.add_on(0, NICE_0, 1..=1));
    [from, others[0], others[1], to].iter().for_each(|thread| m.wake(*thread));
    m.run_for(MS / 2);
    assert_eq!(m.yield_to(from, to), Yield::Yielded);
    m.host.current(1) == Some(to)
}

/// As set_next_buddy(), which walks up to the root.
#[test]
fn a_yield_to_a_vcpu_makes_its_vm_the_buddy_as_well() {
    assert!(runs_next(0), "the VM runs before its deadline is the earliest");
    assert!(!runs_next(8), "and does not without NEXT_BUDDY");
}
