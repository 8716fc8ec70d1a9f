//! Tests of directed yields and of the Debooster's forms.

use super::machine::{MS, Machine, NICE_0, SECOND};
use proptest::prelude::*;
use unspin_policy::host::{Config, Debooster, Gifts, Scheduler, Yield};

/// Returns a machine of one pCPU with threads of these weights, which have run for some time.
fn machine(scheduler: Scheduler, debooster: Debooster, weights: &[u32]) -> Machine {
    let config = Config { debooster, tick_ns: MS, ..Config::new(1, scheduler) };
    let mut machine = Machine::new(&config);
    for weight in weights {
        let thread = machine.add(0, *weight);
        machine.wake(thread);
    }
    machine.run_for(100 * MS);
    machine
}

/// Runs until the current thread is eligible, so that it has a request to forfeit, and another
/// thread is not. Returns both threads.
fn with_ineligible_target(m: &mut Machine) -> Option<(u32, u32)> {
    for _ in 0..1_000 {
        m.run_for(MS / 10);
        let from = m.host.current(0).unwrap();
        let target = m.threads().find(|t| *t != from && !m.host.is_eligible(*t));
        if let Some(to) = target.filter(|_| m.host.is_eligible(from)) {
            return Some((from, to));
        }
    }
    None
}

/// Runs until a thread other than the current one is eligible. Returns the current thread and the
/// last eligible one.
fn with_eligible_target(m: &mut Machine) -> (u32, u32) {
    for _ in 0..1_000 {
        m.run_for(MS / 10);
        let from = m.host.current(0).unwrap();
        let target = m.threads().rfind(|t| *t != from && m.host.is_eligible(*t));
        if let Some(to) = target {
            return (from, to);
        }
    }
    panic!("nobody is eligible");
}

#[test]
fn an_eligible_target_runs_next() {
    let mut m = machine(Scheduler::Eevdf, Debooster::Off, &[NICE_0; 4]);
    for _ in 0..200 {
        let (from, to) = with_eligible_target(&mut m);
        assert_eq!(m.yield_to(from, to), Yield::Yielded);
        assert_eq!(m.host.current(0), Some(to));
    }
    assert_eq!(m.host.gifts(), Gifts { made: 0, unneeded: 200, refused: 0 });
}

#[test]
fn without_a_buddy_the_target_often_does_not_run_next() {
    let config = Config { no_features: 8, tick_ns: MS, ..Config::new(1, Scheduler::Eevdf) };
    let mut m = Machine::new(&config);
    m.greedy(4);
    let mut missed = 0;
    for _ in 0..100 {
        let (from, to) = with_eligible_target(&mut m);
        m.yield_to(from, to);
        missed += u32::from(m.host.current(0) != Some(to));
    }
    assert!(missed > 10, "{missed}");
}

/// Returns how many of 100 yields to an ineligible target made the target run next.
fn honoured(debooster: Debooster) -> u32 {
    let mut m = machine(Scheduler::Eevdf, debooster, &[NICE_0; 4]);
    let mut next = 0;
    for _ in 0..100 {
        // The yielder pays off a penalty in that time.
        m.run_for(200 * MS);
        let (from, to) = with_ineligible_target(&mut m).unwrap();
        m.yield_to(from, to);
        next += u32::from(m.host.current(0) == Some(to));
    }
    let gifts = m.host.gifts();
    assert_eq!(gifts.made + gifts.unneeded + gifts.refused, 100);
    assert!(u64::from(next) >= gifts.made + gifts.unneeded, "{next}, {gifts:?}");
    assert_eq!(gifts.made > 0, debooster != Debooster::Off);
    next
}

/// The yielder's forfeit limits a transfer, but not a penalty.
#[test]
fn mainline_ignores_ineligible_targets_and_the_deboosters_do_not() {
    use Debooster::{Credit, Off, Penalty, Transfer};
    let [off, penalty, transfer, credit] = [Off, Penalty, Transfer, Credit].map(honoured);
    assert!(
        off + 10 < transfer && transfer < penalty && penalty >= 98 && credit >= 98,
        "{off} {penalty} {transfer} {credit}"
    );
}

proptest! {
    #[test]
    fn a_gift_keeps_the_weighted_sum(
        weights in prop::collection::vec(prop_oneof![Just(NICE_0), 300u32..4000], 3..=6),
        forfeit in 1u64..3 * MS,
    ) {
        let mut m = machine(Scheduler::Eevdf, Debooster::Transfer, &weights);
        let found = with_ineligible_target(&mut m);
        prop_assume!(found.is_some());
        let (from, to) = found.unwrap();
        let (sum, mean) = (m.host.queue_sum(from), m.host.queue_mean(from));
        let (was_from, was_to) = (m.host.vruntime(from), m.host.vruntime(to));
        let paid = m.host.gift(from, to, forfeit);
        let grew = m.host.queue_sum(from) - sum;
        prop_assert!((0..i64::from(weights[from as usize])).contains(&grew), "grew by {grew}");
        prop_assert!(m.host.queue_mean(from) - mean <= 1, "V moves by rounding only");
        prop_assert_eq!(m.host.vruntime(from) - was_from, paid);
        prop_assert!(paid <= forfeit);
        let got = was_to - m.host.vruntime(to);
        prop_assert!(m.host.is_eligible(to) || paid + 4 * NICE_0 as u64 >= forfeit);
        let weighs = |thread: u32, ns: u64| ns * u64::from(weights[thread as usize]);
        prop_assert!(weighs(from, paid) >= weighs(to, got));
    }

    /// A credit of d n / (n - 1) makes the target eligible, and takes d / (n - 1) of lag from each
    /// other thread.
    #[test]
    fn a_credit_is_paid_by_all_others(count in 3u32..=6) {
        let mut m = machine(Scheduler::Eevdf, Debooster::Credit, &vec![NICE_0; count as usize]);
        let found = with_ineligible_target(&mut m);
        prop_assume!(found.is_some());
        let (from, to) = found.unwrap();
        let vruntimes: Vec<u64> = m.threads().map(|thread| m.host.vruntime(thread)).collect();
        let (mean, n) = (m.host.queue_mean(from), u64::from(count));
        let distance = vruntimes[to as usize] - mean;
        m.host.credit(to);
        for thread in m.threads().filter(|thread| *thread != to) {
            prop_assert_eq!(m.host.vruntime(thread), vruntimes[thread as usize]);
        }
        let got = vruntimes[to as usize] - m.host.vruntime(to);
        prop_assert!((distance * n / (n - 1)).abs_diff(got) <= 2, "{got} for {distance}");
        prop_assert!(m.host.is_eligible(to));
        prop_assert!((distance / (n - 1)).abs_diff(mean - m.host.queue_mean(from)) <= 2);
    }

    /// A penalty moves V up to the target's virtual time, at the yielder's cost alone.
    #[test]
    fn a_penalty_is_n_times_the_targets_distance(count in 3u32..=6) {
        let mut m = machine(Scheduler::Eevdf, Debooster::Penalty, &vec![NICE_0; count as usize]);
        let found = with_ineligible_target(&mut m);
        prop_assume!(found.is_some());
        let (from, to) = found.unwrap();
        let vruntimes: Vec<u64> = m.threads().map(|thread| m.host.vruntime(thread)).collect();
        let mean = m.host.queue_mean(from);
        m.host.yield_to(from, to, m.now);
        for thread in m.threads().filter(|thread| *thread != from) {
            prop_assert_eq!(m.host.vruntime(thread), vruntimes[thread as usize]);
        }
        let distance = vruntimes[to as usize] - mean;
        let paid = m.host.vruntime(from) - vruntimes[from as usize];
        let wanted = u64::from(count) * distance;
        prop_assert!(paid + u64::from(count) >= wanted, "{paid}, not {wanted}");
        prop_assert!(m.host.queue_mean(from) >= vruntimes[to as usize] - 1);
    }
}

#[test]
fn cfs_ignores_a_target_that_is_far_ahead_and_a_penalty_does_not() {
    for (debooster, honoured) in [(Debooster::Off, false), (Debooster::Penalty, true)] {
        let mut m = machine(Scheduler::Cfs, debooster, &[NICE_0; 2]);
        // Right after a long run, a thread is ahead by more than the wake-up granularity.
        let (from, to) = loop {
            m.run_for(MS / 10);
            let from = m.host.current(0).unwrap();
            if m.host.vruntime(1 - from) > m.host.vruntime(from) + 2 * MS {
                break (from, 1 - from);
            }
        };
        assert_eq!(m.yield_to(from, to), Yield::Yielded);
        assert_eq!(m.host.current(0) == Some(to), honoured, "{debooster:?}");
    }
}

#[test]
fn cfs_prefers_a_target_that_is_little_ahead_and_skips_the_yielder() {
    let mut m = machine(Scheduler::Cfs, Debooster::Off, &[NICE_0; 2]);
    let (from, to) = loop {
        m.run_for(MS / 10);
        let from = m.host.current(0).unwrap();
        let ahead = m.host.vruntime(1 - from) as i64 - m.host.vruntime(from) as i64;
        if (1..=MS as i64).contains(&ahead) {
            break (from, 1 - from);
        }
    };
    m.yield_to(from, to);
    assert_eq!(m.host.current(0), Some(to));
}

/// Returns a machine with three threads under CFS, all within a millisecond of virtual time.
fn close_cfs_threads() -> Machine {
    let config = Config { tick_ns: MS / 8, slice_ns: MS / 8, ..Config::new(1, Scheduler::Cfs) };
    let mut m = Machine::new(&config);
    m.greedy(3);
    m.run_for(50 * MS);
    let vruntimes: Vec<u64> = m.threads().map(|thread| m.host.vruntime(thread)).collect();
    assert!(vruntimes.iter().max().unwrap() - vruntimes.iter().min().unwrap() < MS);
    m
}

#[test]
fn cfs_prefers_the_target_to_the_leftmost() {
    let mut m = close_cfs_threads();
    for _ in 0..60 {
        m.run_for(MS / 4);
        let from = m.host.current(0).unwrap();
        for to in m.threads().filter(|to| *to != from) {
            let mut host = m.host.clone();
            assert_eq!(host.yield_to(from, to, m.now), Yield::Yielded);
            assert_eq!(host.resched(0, m.now), Some(to));
        }
    }
}

#[test]
fn cfs_skips_the_yielder_although_it_is_leftmost() {
    let mut m = close_cfs_threads();
    for _ in 0..60 {
        m.run_for(MS / 4);
        let from = m.host.current(0).unwrap();
        m.yield_now(from);
        assert_ne!(m.host.current(0), Some(from));
    }
}

#[test]
fn yields_that_make_no_sense_are_refused() {
    let mut m = Machine::new(&Config::new(2, Scheduler::Eevdf));
    let threads = m.greedy(2);
    let sleeper = m.add(0, NICE_0);
    assert_eq!(m.yield_to(threads[0], sleeper), Yield::NotQueued);
    assert_eq!(m.yield_to(threads[0], threads[1]), Yield::Running);
    assert_eq!(m.yield_to(threads[0], threads[0]), Yield::Running);
    m.wake(sleeper);
    assert_eq!(m.yield_to(sleeper, threads[0]), Yield::Running);
}

/// yield_to() returns -ESRCH: neither pCPU has a competitor.
#[test]
fn a_yield_between_two_that_are_alone_is_refused() {
    let mut m = Machine::new(&Config::new(2, Scheduler::Eevdf));
    let [from, to] = [0, 1].map(|pcpu| m.add_on(0, NICE_0, pcpu..=pcpu));
    m.wake(from);
    m.wake(to);
    m.toggle(1);
    assert_eq!(m.yield_to(from, to), Yield::Refused);
}

#[test]
fn a_target_on_another_pcpu_runs_next_there() {
    let mut m = Machine::new(&Config::new(2, Scheduler::Eevdf));
    let threads: Vec<u32> = (0..6).map(|i| m.add_on(0, NICE_0, i % 2..=i % 2)).collect();
    threads.iter().for_each(|thread| m.wake(*thread));
    m.run_for(50 * MS);
    let from = m.host.current(0).unwrap();
    let (mut tried, mut next) = (0, 0);
    for to in [1, 3, 5] {
        if m.host.current(1) != Some(to) && m.host.is_eligible(to) {
            tried += 1;
            let yielder = m.host.current(0).unwrap_or(from);
            assert_eq!(m.yield_to(yielder, to), Yield::Yielded);
            next += u32::from(m.host.current(1) == Some(to));
        }
    }
    assert!(tried > 0 && next == tried, "{next} of {tried}");
}

#[test]
fn a_yield_forfeits_the_rest_of_the_request() {
    let mut m = machine(Scheduler::Eevdf, Debooster::Off, &[NICE_0; 2]);
    let mut forfeited = 0;
    for _ in 0..100 {
        m.run_for(MS / 10);
        let from = m.host.current(0).unwrap();
        let due = m.host.deadline(from);
        m.yield_now(from);
        // Only an eligible thread gives up its request.
        if m.host.vruntime(from) == due {
            assert_eq!(m.host.deadline(from), due + 700_000, "a whole new request");
            assert_ne!(m.host.current(0), Some(from));
            forfeited += 1;
        }
    }
    assert!(forfeited > 30, "{forfeited}");
}

/// Returns the ratio of the CPU time of two threads that always yield to each other to that of two
/// threads that never do.
fn share_of_yielders(debooster: Debooster) -> f64 {
    let mut m = machine(Scheduler::Eevdf, debooster, &[NICE_0; 4]);
    let before = m.runtimes();
    while m.now < 2 * SECOND {
        m.run_for(MS / 5);
        let from = m.host.current(0).unwrap();
        // Threads 0 and 1 always yield to each other; 2 and 3 never do.
        if from < 2 {
            m.yield_to(from, 1 - from);
        }
    }
    let ran: Vec<u64> = m.runtimes().iter().zip(before).map(|(now, was)| now - was).collect();
    (ran[0] + ran[1]) as f64 / (ran[2] + ran[3]) as f64
}

#[test]
fn gifts_are_fair_in_the_long_run_and_credits_are_not() {
    assert!(share_of_yielders(Debooster::Transfer) <= 1.02, "yielding brings no time");
    let credit = share_of_yielders(Debooster::Credit);
    assert!(credit > 1.1, "{credit}: a credit without a limit takes from the others");
}

/// The forfeit stays inside the VM: its group entity on the pCPU neither gains nor loses.
#[test]
fn yields_inside_a_vm_leave_the_vms_shares_alone() {
    for debooster in [Debooster::Off, Debooster::Penalty, Debooster::Transfer, Debooster::Credit] {
        let config = Config { debooster, tick_ns: MS, ..Config::new(1, Scheduler::Eevdf) };
        let mut m = Machine::new(&config);
        for _ in 0..2 {
            let group = m.host.group(NICE_0, 0, 0);
            for _ in 0..3 {
                let thread = m.add(group, NICE_0);
                m.wake(thread);
            }
        }
        let mut yields = 0;
        while m.now < SECOND {
            m.run_for(MS / 5);
            let from = m.host.current(0).unwrap();
            if from < 3 {
                m.yield_to(from, (from + 1 + yields % 2) % 3);
                yields += 1;
            }
        }
        let ran: u64 = m.runtimes()[..3].iter().sum();
        let share = ran as f64 / SECOND as f64;
        assert!((share - 0.5).abs() < 0.02, "{debooster:?}: {share}");
        assert!(yields > 1_000, "{yields}");
    }
}
