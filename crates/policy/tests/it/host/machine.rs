//! A host and its clock: the caller that the host's interface requires. It checks the host's
//! invariants.

use std::ops::RangeInclusive;
use unspin_policy::host::{Config, Host, State, Yield};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;
/// The weight of a nice-0 thread.
pub const NICE_0: u32 = 1024;

/// A change of a pCPU's current thread; `None`: no thread runs now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    pub at: u64,
    pub pcpu: u32,
    pub thread: Option<u32>,
}

pub struct Machine {
    pub host: Host,
    pub now: u64,
    pub switches: Vec<Switch>,
    /// The pCPUs on which each thread may run.
    ranges: Vec<RangeInclusive<u32>>,
    pcpus: u32,
    taken: Vec<bool>,
    /// The time for which pCPUs had a current thread, summed over all pCPUs.
    busy_ns: u64,
}

impl Machine {
    pub fn new(config: &Config) -> Machine {
        let (host, pcpus) = (Host::new(config), config.pcpus);
        let taken = vec![false; pcpus as usize];
        let (switches, ranges) = (Vec::new(), Vec::new());
        Machine { host, now: 0, switches, ranges, pcpus, taken, busy_ns: 0 }
    }

    /// Adds a thread that may run on every pCPU.
    pub fn add(&mut self, group: u32, weight: u32) -> u32 {
        self.add_on(group, weight, 0..=self.pcpus - 1)
    }

    pub fn add_on(&mut self, group: u32, weight: u32, range: RangeInclusive<u32>) -> u32 {
        self.ranges.push(range.clone());
        self.host.add(group, weight, range)
    }

    pub fn wake(&mut self, thread: u32) {
        self.wake_from(thread, None);
    }

    pub fn wake_from(&mut self, thread: u32, waker_pcpu: Option<u32>) {
        self.host.wake(thread, waker_pcpu, self.now);
        self.settle();
    }

    /// Adds threads of nice 0 to the root group and wakes them.
    pub fn greedy(&mut self, count: u32) -> Vec<u32> {
        let threads: Vec<u32> = (0..count).map(|_| self.add(0, NICE_0)).collect();
        threads.iter().for_each(|thread| self.wake(*thread));
        threads
    }

    pub fn block(&mut self, thread: u32) {
        self.host.block(thread, self.now);
        self.settle();
    }

    pub fn yield_to(&mut self, from: u32, to: u32) -> Yield {
        let result = self.host.yield_to(from, to, self.now);
        self.settle();
        result
    }

    pub fn yield_now(&mut self, from: u32) {
        self.host.yield_now(from, self.now);
        self.settle();
    }

    pub fn toggle(&mut self, pcpu: u32) {
        let taken = &mut self.taken[pcpu as usize];
        *taken = !*taken;
        if *taken {
            self.host.take(pcpu, self.now);
            let (at, thread) = (self.now, None);
            self.switches.push(Switch { at, pcpu, thread });
        } else {
            self.host.give(pcpu, self.now);
        }
        self.settle();
    }

    /// Runs until `time`, with all ticks and refills up to it.
    pub fn run_until(&mut self, time: u64) {
        while let Some(next) = self.host.next().filter(|next| *next <= time) {
            assert!(next >= self.now, "the host wants to be called in the past");
            self.pass(next);
            self.host.update(next);
            self.settle();
        }
        self.pass(time);
    }

    /// Runs until the thread has been on for `ns` in its next turn, within 100 us.
    pub fn run_into_turn(&mut self, thread: u32, ns: u64) {
        for state in [State::Queued, State::On] {
            while self.host.state(thread) != state {
                self.run_for(MS / 10);
            }
        }
        self.run_for(ns);
    }

    /// Wakes a thread, and returns how long it waits for its pCPU, within 100 us.
    pub fn wake_and_wait(&mut self, thread: u32) -> u64 {
        self.wake(thread);
        let woken = self.now;
        while self.host.state(thread) != State::On {
            self.run_for(MS / 10);
        }
        self.now - woken
    }

    pub fn run_for(&mut self, ns: u64) {
        self.run_until(self.now + ns);
    }

    /// A copy of the host in which the pCPU has scheduled at that time, so what has run is charged.
    pub fn after_resched(&self, pcpu: u32, now: u64) -> Host {
        let mut host = self.host.clone();
        host.resched(pcpu, now);
        host
    }

    fn pass(&mut self, time: u64) {
        assert!(time < 1_000 * SECOND, "a test waits in vain");
        let on = (0..self.pcpus).filter(|p| self.host.current(*p).is_some()).count();
        self.busy_ns += on as u64 * (time - self.now);
        self.now = time;
    }

    fn settle(&mut self) {
        for round in 0.. {
            let due: Vec<u32> = (0..self.pcpus).filter(|p| self.host.need_resched(*p)).collect();
            if due.is_empty() {
                break;
            }
            assert!(round < 100, "pCPUs keep rescheduling at {}", self.now);
            for pcpu in due {
                let before = self.host.current(pcpu);
                let thread = self.host.resched(pcpu, self.now);
                assert!(!self.host.need_resched(pcpu) || thread.is_none());
                if thread != before {
                    self.switches.push(Switch { at: self.now, pcpu, thread });
                }
            }
        }
        self.check();
    }

    fn check(&self) {
        let now = self.now;
        for pcpu in 0..self.pcpus {
            let Some(thread) = self.host.current(pcpu) else { continue };
            assert!(!self.taken[pcpu as usize], "{now}: pCPU {pcpu} runs while it is taken");
            assert_eq!(self.host.state(thread), State::On);
            assert_eq!(self.host.pcpu(thread), pcpu);
            assert!(self.ranges[thread as usize].contains(&pcpu), "{now}: {thread} is not pinned");
        }
        let sum: u64 = self.threads().map(|thread| self.host.runtime(thread, now)).sum();
        assert_eq!(sum, self.busy_ns, "{now}: runtimes differ from the pCPUs' busy time");
        for thread in self.threads().filter(|t| self.host.is_delayed(*t)) {
            assert_eq!(self.host.state(thread), State::Blocked);
            let idle = self.is_idle(self.host.pcpu(thread)) && !self.host.is_throttled(thread);
            assert!(!idle, "{now}: {thread} is delayed on an idle pCPU");
        }
        for thread in self.threads().filter(|t| self.host.state(*t) == State::Queued) {
            if self.host.is_throttled(thread) {
                continue;
            }
            let mut range = self.ranges[thread as usize].clone();
            // A group may have used up its quota on the idle pCPU only.
            let idle = range.find(|p| self.is_idle(*p) && !self.host.is_throttled_on(thread, *p));
            assert!(idle.is_none(), "{now}: {thread} waits, pCPU {idle:?} idles");
        }
    }

    pub fn is_idle(&self, pcpu: u32) -> bool {
        self.host.current(pcpu).is_none() && !self.taken[pcpu as usize]
    }

    pub fn threads(&self) -> std::ops::Range<u32> {
        0..self.ranges.len() as u32
    }

    pub fn runtimes(&self) -> Vec<u64> {
        self.threads().map(|thread| self.host.runtime(thread, self.now)).collect()
    }

    /// Runs for `ns` and returns the run time of each thread in that time.
    pub fn shares_of(&mut self, ns: u64) -> Vec<u64> {
        let before = self.runtimes();
        self.run_for(ns);
        self.runtimes().iter().zip(before).map(|(after, before)| after - before).collect()
    }
}
