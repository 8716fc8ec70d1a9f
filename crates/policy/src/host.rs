//! `policy/host/`: a simulated CPU scheduler of a host.

use std::ops::RangeInclusive;

mod kinds;

pub use kinds::{Config, Debooster, Gifts, Scheduler, State, Yield};

/// The C side's `struct host`.
#[repr(C)]
struct Raw {
    opaque: [u8; 0],
}

const NONE: u32 = u32::MAX;

// SAFETY: for every call below: the functions access only the host that they get, which is
// host_size bytes long and set up by host_start(), and buffers of the lengths given here. `Host`
// keeps the numbers of threads and pCPUs within their bounds.
unsafe extern "C" {
    safe static host_size: u64;
    fn host_start(
        h: *mut Raw,
        pcpus: u32,
        scheduler: u32,
        debooster: u32,
        no_features: u32,
        extend: u32,
        tick_ns: u64,
        slice_ns: u64,
        phase_ns: u64,
    );
    fn host_group(h: *mut Raw, weight: u32, quota_ns: u64, period_ns: u64) -> u32;
    fn host_add(h: *mut Raw, group: u32, weight: u32, first: u32, last: u32) -> u32;
    fn host_wake(h: *mut Raw, e: u32, waker_pcpu: u32, now: u64);
    fn host_block(h: *mut Raw, e: u32, now: u64);
    fn host_next(h: *const Raw) -> u64;
    fn host_update(h: *mut Raw, now: u64);
    fn host_need_resched(h: *const Raw, p: u32) -> u32;
    fn host_current(h: *const Raw, p: u32) -> u32;
    fn host_resched(h: *mut Raw, p: u32, now: u64) -> u32;
    fn host_state(h: *const Raw, e: u32) -> u32;
    fn host_pcpu(h: *const Raw, e: u32) -> u32;
    fn host_runtime(h: *const Raw, e: u32, now: u64) -> u64;
    fn host_yield_to(h: *mut Raw, from: u32, to: u32, now: u64) -> u32;
    fn host_yield(h: *mut Raw, from: u32, now: u64);
    fn host_take(h: *mut Raw, p: u32, now: u64);
    fn host_give(h: *mut Raw, p: u32, now: u64);
    fn host_set_critical(h: *mut Raw, e: u32, critical: u32);
    fn host_read_extensions(h: *const Raw) -> u64;
    fn host_read_gifts(h: *const Raw, gifts: *mut [u64; 3]);
    fn host_is_throttled(h: *const Raw, e: u32, p: u32) -> u32;
    fn host_is_delayed(h: *const Raw, e: u32) -> u32;
    fn host_vruntime(h: *const Raw, e: u32) -> u64;
    fn host_deadline(h: *const Raw, e: u32) -> u64;
    fn host_reweigh(h: *mut Raw, e: u32, weight: u32);
    fn host_queue_mean(h: *const Raw, e: u32) -> u64;
    fn host_queue_sum(h: *const Raw, e: u32) -> i64;
    fn host_is_eligible(h: *const Raw, e: u32) -> u32;
    fn host_gift(h: *mut Raw, from: u32, to: u32, forfeit: u64) -> u64;
    fn host_give_credit(h: *mut Raw, to: u32);
}

/// A simulated host. Its methods are those of `policy/host/sched.h`, where they are explained.
#[derive(Clone, PartialEq, Eq)]
pub struct Host {
    words: Vec<u64>,
    pcpus: u32,
    threads: u32,
}

impl Host {
    /// Returns a host that has nothing to run.
    pub fn new(c: &Config) -> Host {
        assert!((1..=96).contains(&c.pcpus), "a host has 1 to 96 pCPUs, not {}", c.pcpus);
        let words = vec![0; host_size.div_ceil(8) as usize];
        let mut host = Host { words, pcpus: c.pcpus, threads: 0 };
        let kinds = (c.scheduler as u32, c.debooster as u32);
        let times = (c.tick_ns, c.slice_ns, c.phase_ns);
        let h = host.raw_mut();
        // SAFETY: see above; the C enums have the same values as these.
        unsafe {
            host_start(
                h,
                c.pcpus,
                kinds.0,
                kinds.1,
                c.no_features,
                u32::from(c.extend),
                times.0,
                times.1,
                times.2,
            );
        }
        host
    }

    fn raw(&self) -> *const Raw {
        self.words.as_ptr().cast()
    }

    fn raw_mut(&mut self) -> *mut Raw {
        self.words.as_mut_ptr().cast()
    }

    fn thread(&self, e: u32) -> u32 {
        assert!(e < self.threads, "thread {e} does not exist");
        e
    }

    fn pcpu_number(&self, p: u32) -> u32 {
        assert!(p < self.pcpus, "pCPU {p} does not exist");
        p
    }

    /// Adds a group and returns its number. Quota 0 is unlimited.
    pub fn group(&mut self, weight: u32, quota_ns: u64, period_ns: u64) -> u32 {
        // SAFETY: see above.
        let group = unsafe { host_group(self.raw_mut(), weight, quota_ns, period_ns) };
        assert_ne!(group, NONE, "too many groups");
        group
    }

    /// Adds a thread, blocked, and returns its number.
    pub fn add(&mut self, group: u32, weight: u32, pcpus: RangeInclusive<u32>) -> u32 {
        // SAFETY: see above.
        let e = unsafe { host_add(self.raw_mut(), group, weight, *pcpus.start(), *pcpus.end()) };
        assert_ne!(e, NONE, "too many threads, or no such group or pCPU");
        self.threads += 1;
        e
    }

    /// Notes that the thread wants to run.
    pub fn wake(&mut self, e: u32, waker_pcpu: Option<u32>, now: u64) {
        let e = self.thread(e);
        // SAFETY: see above.
        unsafe { host_wake(self.raw_mut(), e, waker_pcpu.unwrap_or(NONE), now) }
    }

    /// Notes that the thread halts.
    pub fn block(&mut self, e: u32, now: u64) {
        let e = self.thread(e);
        // SAFETY: see above.
        unsafe { host_block(self.raw_mut(), e, now) }
    }

    /// Returns when the caller must next call `update`; `None`: not before another call.
    pub fn next(&self) -> Option<u64> {
        // SAFETY: see above.
        let next = unsafe { host_next(self.raw()) };
        (next != u64::MAX).then_some(next)
    }

    /// Carries out the ticks and quota refills that are due.
    pub fn update(&mut self, now: u64) {
        // SAFETY: see above.
        unsafe { host_update(self.raw_mut(), now) }
    }

    /// Returns whether the caller must call `resched` for the pCPU.
    pub fn need_resched(&self, p: u32) -> bool {
        // SAFETY: see above.
        unsafe { host_need_resched(self.raw(), self.pcpu_number(p)) != 0 }
    }

    /// Returns the thread that runs on the pCPU.
    pub fn current(&self, p: u32) -> Option<u32> {
        // SAFETY: see above.
        let e = unsafe { host_current(self.raw(), self.pcpu_number(p)) };
        (e != NONE).then_some(e)
    }

    /// Lets the pCPU schedule. Returns its new current thread.
    pub fn resched(&mut self, p: u32, now: u64) -> Option<u32> {
        let p = self.pcpu_number(p);
        // SAFETY: see above.
        let e = unsafe { host_resched(self.raw_mut(), p, now) };
        (e != NONE).then_some(e)
    }

    /// Returns the thread's state.
    pub fn state(&self, e: u32) -> State {
        // SAFETY: see above.
        match unsafe { host_state(self.raw(), self.thread(e)) } {
            0 => State::Blocked,
            1 => State::Queued,
            _ => State::On,
        }
    }

    /// Returns the pCPU on which the thread runs, waits or ran last.
    pub fn pcpu(&self, e: u32) -> u32 {
        // SAFETY: see above.
        unsafe { host_pcpu(self.raw(), self.thread(e)) }
    }

    /// Returns the time that the thread has been on since the start, in nanoseconds.
    pub fn runtime(&self, e: u32, now: u64) -> u64 {
        // SAFETY: see above.
        unsafe { host_runtime(self.raw(), self.thread(e), now) }
    }

    /// Yields from one thread to another, as `yield_to()` does.
    pub fn yield_to(&mut self, from: u32, to: u32, now: u64) -> Yield {
        let (from, to) = (self.thread(from), self.thread(to));
        // SAFETY: see above.
        match unsafe { host_yield_to(self.raw_mut(), from, to, now) } {
            0 => Yield::Yielded,
            1 => Yield::NotQueued,
            2 => Yield::Running,
            3 => Yield::Refused,
            _ => Yield::Throttled,
        }
    }

    /// Gives up the thread's turn, as `sched_yield()` does.
    pub fn yield_now(&mut self, from: u32, now: u64) {
        let from = self.thread(from);
        // SAFETY: see above.
        unsafe { host_yield(self.raw_mut(), from, now) }
    }

    /// Notes whether the thread, which runs, is in a critical section.
    pub fn set_critical(&mut self, e: u32, critical: bool) {
        let e = self.thread(e);
        // SAFETY: see above.
        unsafe { host_set_critical(self.raw_mut(), e, u32::from(critical)) }
    }

    /// Returns how often a thread kept its pCPU for one more tick.
    pub fn extensions(&self) -> u64 {
        // SAFETY: see above.
        unsafe { host_read_extensions(self.raw()) }
    }

    /// Takes the pCPU away from all threads, as the injector does.
    pub fn take(&mut self, p: u32, now: u64) {
        let p = self.pcpu_number(p);
        // SAFETY: see above.
        unsafe { host_take(self.raw_mut(), p, now) }
    }

    /// Gives a taken pCPU back.
    pub fn give(&mut self, p: u32, now: u64) {
        let p = self.pcpu_number(p);
        // SAFETY: see above.
        unsafe { host_give(self.raw_mut(), p, now) }
    }

    /// Returns the Debooster's outcomes so far.
    pub fn gifts(&self) -> Gifts {
        let mut gifts = [0; 3];
        // SAFETY: see above.
        unsafe { host_read_gifts(self.raw(), &mut gifts) };
        Gifts { made: gifts[0], unneeded: gifts[1], refused: gifts[2] }
    }

    /// Returns whether the thread's group is out of quota on a pCPU.
    pub fn is_throttled_on(&self, e: u32, p: u32) -> bool {
        let p = self.pcpu_number(p);
        // SAFETY: see above.
        unsafe { host_is_throttled(self.raw(), self.thread(e), p) != 0 }
    }

    /// Returns whether the thread's group is out of quota on the thread's own pCPU.
    pub fn is_throttled(&self, e: u32) -> bool {
        self.is_throttled_on(e, self.pcpu(e))
    }

    /// Returns whether the thread sleeps, but stays on its run queue until it has paid for the time
    /// beyond its share.
    pub fn is_delayed(&self, e: u32) -> bool {
        // SAFETY: see above.
        unsafe { host_is_delayed(self.raw(), self.thread(e)) != 0 }
    }

    /// Returns the thread's virtual time.
    pub fn vruntime(&self, e: u32) -> u64 {
        // SAFETY: see above.
        unsafe { host_vruntime(self.raw(), self.thread(e)) }
    }

    /// Returns the thread's virtual deadline.
    pub fn deadline(&self, e: u32) -> u64 {
        // SAFETY: see above.
        unsafe { host_deadline(self.raw(), self.thread(e)) }
    }

    /// Changes a thread's weight under EEVDF, as that of a group's entity changes.
    pub fn reweigh(&mut self, e: u32, weight: u32) {
        let e = self.thread(e);
        // SAFETY: see above.
        unsafe { host_reweigh(self.raw_mut(), e, weight) }
    }

    /// Returns V of the thread's run queue.
    pub fn queue_mean(&self, e: u32) -> u64 {
        // SAFETY: see above.
        unsafe { host_queue_mean(self.raw(), self.thread(e)) }
    }

    /// Returns the weighted sum of the virtual times on the thread's run queue.
    pub fn queue_sum(&self, e: u32) -> i64 {
        // SAFETY: see above.
        unsafe { host_queue_sum(self.raw(), self.thread(e)) }
    }

    /// Returns whether the thread has had no more than its share of its run queue.
    pub fn is_eligible(&self, e: u32) -> bool {
        // SAFETY: see above.
        unsafe { host_is_eligible(self.raw(), self.thread(e)) != 0 }
    }

    /// Carries out the Debooster's transfer alone, between threads of one run queue. Returns the
    /// giver's payment.
    pub fn gift(&mut self, from: u32, to: u32, forfeit_ns: u64) -> u64 {
        let (from, to) = (self.thread(from), self.thread(to));
        // SAFETY: see above.
        unsafe { host_gift(self.raw_mut(), from, to, forfeit_ns) }
    }

    /// Carries out the Debooster's credit alone, between threads of one run queue.
    pub fn credit(&mut self, to: u32) {
        let to = self.thread(to);
        // SAFETY: see above.
        unsafe { host_give_credit(self.raw_mut(), to) }
    }
}
