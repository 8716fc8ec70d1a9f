//! The run: the threads, the measured loop, and its results.

use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::locks::{
    Kind, Mcs, NoLock, Padded, PthreadMutex, PthreadSpin, RawLock, Tas, Ticket, Ttas,
};
use crate::work;

/// The longest wait that the histogram resolves: an hour, in nanoseconds.
const WAIT_MAX_NS: u64 = 3_600_000_000_000;

/// The excess time that shows that a critical section was interrupted, in nanoseconds: its thread
/// or its vCPU lost the CPU meanwhile.
const HIT_NS: u64 = 1_000_000;

/// Significant digits of the histogram: values are within 1 %.
const WAIT_DIGITS: u8 = 2;

/// The parameters of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Number of threads.
    pub threads: usize,
    /// Length of one loop of work, in nanoseconds.
    pub loop_ns: f64,
    /// Work inside the lock, in nanoseconds.
    pub cs_ns: u64,
    /// Loops inside the lock.
    pub cs_loops: u64,
    /// Loops outside the lock.
    pub outside_loops: u64,
    /// Mean number of acquisitions for each timed one.
    pub sample_every: u32,
}

/// The results of a run.
#[derive(Debug)]
pub struct Measured {
    /// Time from the start of all threads to the stop flag.
    pub elapsed: Duration,
    /// Operations of each thread.
    pub per_thread: Vec<u64>,
    /// Threads that waited for the lock when the run ended, and gave up.
    pub gave_up: u32,
    /// Operations missing from the counter that the lock guards: 0 if the lock excludes.
    pub lost_updates: u64,
    /// Durations of the timed acquisitions, in nanoseconds.
    pub waits: Histogram<u64>,
    /// Critical sections after those acquisitions that took more than [`HIT_NS`] longer than their
    /// work.
    pub hits: u64,
}

/// Runs the plan until `until` returns.
///
/// # Errors
/// Fails if not all threads can be started.
pub fn run(kind: Kind, plan: &Plan, until: impl FnOnce()) -> io::Result<Measured> {
    match kind {
        Kind::Ticket => run_lock::<Ticket>(plan, until),
        Kind::Tas => run_lock::<Tas>(plan, until),
        Kind::Ttas => run_lock::<Ttas>(plan, until),
        Kind::Mcs => run_lock::<Mcs>(plan, until),
        Kind::PthreadSpin => run_lock::<PthreadSpin>(plan, until),
        Kind::PthreadMutex => run_lock::<PthreadMutex>(plan, until),
        Kind::None => run_lock::<NoLock>(plan, until),
    }
}

/// The lock and the data that it guards, each on cache lines of its own.
struct Shared<L> {
    lock: Padded<L>,
    /// A counter of operations without atomics: lost updates reveal a lock that does not exclude.
    counter: Padded<UnsafeCell<u64>>,
    stop: Padded<AtomicBool>,
}

// SAFETY: `counter` is written only by the thread that holds `lock`, and read after all threads
// have ended. The other fields are Sync themselves.
unsafe impl<L: Sync> Sync for Shared<L> {}

/// The gate at which threads wait until all of them have started.
#[derive(Default)]
struct Gate {
    /// The number of threads that have arrived. Once the gate is open, also whether they are to
    /// work.
    state: Mutex<(usize, Option<bool>)>,
    changed: Condvar,
}

impl Gate {
    /// Waits until the gate is open. Returns whether there is work.
    fn pass(&self) -> bool {
        let mut state = self.state();
        state.0 += 1;
        self.changed.notify_all();
        let state = self.changed.wait_while(state, |(_, work)| work.is_none());
        state.expect("nobody panics with it").1 == Some(true)
    }

    /// Waits until `threads` threads have arrived.
    fn gather(&self, threads: usize) {
        drop(self.changed.wait_while(self.state(), |(came, _)| *came < threads));
    }

    fn open(&self, work: bool) {
        self.state().1 = Some(work);
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, (usize, Option<bool>)> {
        self.state.lock().expect("nobody panics with it")
    }
}

fn run_lock<L: RawLock>(plan: &Plan, until: impl FnOnce()) -> io::Result<Measured> {
    let shared = Shared {
        lock: Padded(L::default()),
        counter: Padded(UnsafeCell::new(0)),
        stop: Padded(AtomicBool::new(false)),
    };
    // Nodes outlive all threads, because others write to a node even after its thread gave up.
    let nodes: Vec<L::Node> = (0..plan.threads).map(|_| L::Node::default()).collect();
    let gate = Gate::default();
    let mut elapsed = Duration::ZERO;
    let threads = thread::scope(|scope| -> io::Result<Vec<Thread>> {
        let start_thread = |(index, node)| {
            let (shared, gate) = (&shared, &gate);
            thread::Builder::new().spawn_scoped(scope, move || {
                let mut thread = Thread::new(index, plan.sample_every);
                if gate.pass() {
                    thread.run(shared, node, plan);
                }
                thread
            })
        };
        let started: io::Result<Vec<_>> = nodes.iter().enumerate().map(start_thread).collect();
        // The waiting threads must end, because the scope waits for them.
        let handles = started.inspect_err(|_| gate.open(false))?;
        gate.gather(plan.threads);
        // The clock starts before the gate opens, so that no thread works before the clock runs.
        let start = Instant::now();
        gate.open(true);
        until();
        shared.stop.0.store(true, Ordering::Relaxed);
        elapsed = start.elapsed();
        let ended = handles.into_iter().map(|handle| handle.join().expect("threads do not panic"));
        Ok(ended.collect())
    })?;
    Ok(summarise::<L>(&threads, elapsed, shared.counter.0.into_inner()))
}

fn summarise<L: RawLock>(threads: &[Thread], elapsed: Duration, counter: u64) -> Measured {
    let per_thread: Vec<u64> = threads.iter().map(|thread| thread.operations).collect();
    let mut waits = new_histogram();
    for thread in threads {
        waits.add(&thread.waits).expect("all histograms have the same bounds");
    }
    let counted = if L::EXCLUDES { counter } else { per_thread.iter().sum() };
    Measured {
        elapsed,
        gave_up: threads.iter().filter(|thread| thread.gave_up).count() as u32,
        lost_updates: per_thread.iter().sum::<u64>().abs_diff(counted),
        per_thread,
        waits,
        hits: threads.iter().map(|thread| thread.hits).sum(),
    }
}

fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, WAIT_MAX_NS, WAIT_DIGITS).expect("constant, valid bounds")
}

/// The counters of one thread.
struct Thread {
    operations: u64,
    gave_up: bool,
    waits: Histogram<u64>,
    hits: u64,
    sampler: Sampler,
}

impl Thread {
    fn new(index: usize, sample_every: u32) -> Self {
        let sampler = Sampler::new(index as u64, sample_every);
        Self { operations: 0, gave_up: false, waits: new_histogram(), hits: 0, sampler }
    }

    fn run<L: RawLock>(&mut self, shared: &Shared<L>, node: &L::Node, plan: &Plan) {
        while !shared.stop.0.load(Ordering::Relaxed) {
            let timed = L::EXCLUDES && self.sampler.is_due();
            let wanted = timed.then(Instant::now);
            // SAFETY: the lock is not held here; the node is this thread's own and outlives all
            // threads.
            if !unsafe { shared.lock.0.lock(node, &shared.stop.0) } {
                self.gave_up = true;
                return;
            }
            let taken = timed.then(Instant::now);
            work::run(plan.cs_loops);
            if L::EXCLUDES {
                // SAFETY: this thread holds the lock, which guards the counter.
                unsafe { *shared.counter.0.get() += 1 };
            }
            let done = timed.then(Instant::now);
            // SAFETY: this thread holds the lock, which it took with this node.
            unsafe { shared.lock.0.unlock(node) };
            self.operations += 1;
            if let (Some(wanted), Some(taken), Some(done)) = (wanted, taken, done) {
                self.waits.saturating_record((taken - wanted).as_nanos() as u64);
                let section_ns = (done - taken).as_nanos() as u64;
                self.hits += u64::from(section_ns > plan.cs_ns + HIT_NS);
            }
            work::run(plan.outside_loops);
        }
    }
}

/// Picks one in n acquisitions at random distances, so that it cannot fall into step with a pattern
/// of the lock. Between picks, a call costs one subtraction.
///
/// Three clock reads take some 75 ns; one in 16 adds 5 ns to an operation.
struct Sampler {
    left: u64,
    /// The largest distance. Distances are uniform in 1..=2n-1, n on average.
    distance_max: u64,
    random: u64,
}

impl Sampler {
    fn new(seed: u64, every: u32) -> Self {
        let random = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut sampler = Self { left: 0, distance_max: 2 * u64::from(every) - 1, random };
        sampler.left = sampler.distance();
        sampler
    }

    #[inline]
    fn is_due(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.left = self.distance();
        true
    }

    /// Returns the next distance by Xorshift: G. Marsaglia, "Xorshift RNGs", Journal of Statistical
    /// Software 8(14), 2003.
    fn distance(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        1 + self.random % self.distance_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_end_without_work_where_one_cannot_be_started() {
        for work in [false, true] {
            let gate = Gate::default();
            let worked = thread::scope(|scope| {
                let thread = scope.spawn(|| gate.pass());
                gate.gather(1);
                gate.open(work);
                thread.join().expect("it does not panic")
            });
            assert_eq!(worked, work);
        }
    }

    #[test]
    fn the_sampler_picks_one_in_n() {
        for every in [1, 16, 100] {
            let mut sampler = Sampler::new(3, every);
            let picked = (0..100_000).filter(|_| sampler.is_due()).count() as f64;
            let expected = 100_000.0 / f64::from(every);
            assert!((picked / expected - 1.0).abs() < 0.1, "1 in {every}: {picked}");
        }
    }
}
