//! Exclusion and the end of a run, for every lock.

use std::time::{Duration, Instant};

use super::*;
use crate::bench::{Plan, run};

const LOCKS: [Kind; 6] =
    [Kind::Ticket, Kind::Tas, Kind::Ttas, Kind::Mcs, Kind::PthreadSpin, Kind::PthreadMutex];

fn plan(threads: usize) -> Plan {
    Plan { threads, loop_ns: 1.0, cs_ns: 20, cs_loops: 20, outside_loops: 10, sample_every: 4 }
}

fn for_ms(ms: u64) -> impl FnOnce() {
    move || std::thread::sleep(Duration::from_millis(ms))
}

#[test]
fn every_lock_excludes() {
    for kind in LOCKS {
        let measured = run(kind, &plan(3), for_ms(100)).expect("threads");
        assert_eq!(measured.lost_updates, 0, "{kind:?}");
        assert!(measured.per_thread.iter().sum::<u64>() > 0, "{kind:?}");
        assert!(!measured.waits.is_empty(), "{kind:?}");
    }
}

/// Unlocked updates show that the check above can fail.
#[test]
fn the_counter_shows_a_lock_that_does_not_exclude() {
    let counter = std::sync::atomic::AtomicU64::new(0);
    let two_at_once = || {
        let seen = counter.load(Ordering::Relaxed);
        crate::work::run(100);
        counter.store(seen + 1, Ordering::Relaxed);
    };
    const EACH: u64 = 200_000;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..EACH).for_each(|_| two_at_once()));
        }
    });
    assert!(counter.into_inner() < 4 * EACH);
}

#[test]
fn more_threads_than_cpus_end_in_time() {
    let cpus = std::thread::available_parallelism().map_or(2, usize::from);
    for kind in LOCKS.into_iter().chain([Kind::None]) {
        let start = Instant::now();
        let measured = run(kind, &plan(cpus * 4 + 1), for_ms(50)).expect("threads");
        assert_eq!(measured.per_thread.len(), cpus * 4 + 1);
        assert_eq!(measured.lost_updates, 0, "{kind:?}");
        assert!(start.elapsed() < Duration::from_secs(30), "{kind:?} did not end");
    }
}

#[test]
fn one_thread_never_gives_up() {
    for kind in LOCKS {
        let measured = run(kind, &plan(1), for_ms(10)).expect("threads");
        assert_eq!((measured.gave_up, measured.lost_updates), (0, 0), "{kind:?}");
    }
}

/// Checks that all waiters behind a holder that never returns give up without the lock.
fn waiters_give_up<L: RawLock>() {
    let (lock, stop) = (L::default(), AtomicBool::new(false));
    let nodes: Vec<L::Node> = (0..3).map(|_| L::Node::default()).collect();
    // SAFETY: each thread uses its own node once, and the nodes outlive the threads.
    unsafe {
        assert!(lock.lock(&nodes[0], &stop));
        std::thread::scope(|scope| {
            let (lock, stop) = (&lock, &stop);
            let wait = |node| scope.spawn(move || lock.lock(node, stop));
            let waiters = nodes[1..].iter().map(wait).collect::<Vec<_>>();
            std::thread::sleep(Duration::from_millis(20));
            stop.store(true, Ordering::Relaxed);
            assert!(waiters.into_iter().all(|waiter| !waiter.join().unwrap()));
        });
        lock.unlock(&nodes[0]);
    }
}

#[test]
fn waiters_of_our_own_locks_give_up_when_stopped() {
    waiters_give_up::<Ticket>();
    waiters_give_up::<Tas>();
    waiters_give_up::<Ttas>();
    waiters_give_up::<Mcs>();
}
