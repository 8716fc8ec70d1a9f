//! The state of one vCPU from exit to exit.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hdrhistogram::Histogram;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::line::{Event, What};
use super::{Limits, PLACES_MAX, Vcpu};

/// A storm: consecutive PAUSE exits of one vCPU at one address.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Storm {
    /// Id of the vCPU's thread.
    pub tid: u32,
    /// Index of the vCPU in its VM, if the trace has it.
    pub vcpu: Option<u32>,
    /// Name of the function, or the address if no symbol is known for it.
    pub place: String,
    /// Begin in seconds of the trace's clock.
    pub start_s: f64,
    /// Number of PAUSE exits.
    pub length: u32,
    /// Time from the first exit to the last event in microseconds.
    pub duration_us: f64,
}

/// Numbers of PAUSE exits at a place.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) pause_exits: u64,
    pub(super) storm_exits: u64,
}

/// Counts over all vCPUs.
pub(super) struct Totals {
    limits: Limits,
    pub(super) storm_exits: u64,
    pub(super) length: Histogram<u64>,
    pub(super) duration_ns: Histogram<u64>,
    pub(super) apart_ns: Histogram<u64>,
    pub(super) places: FxHashMap<u64, Counts>,
    pub(super) left_out: u64,
    pub(super) longest: Longest,
}

/// Largest length, and largest time in nanoseconds (18 minutes), that the histograms distinguish.
const LARGEST: u64 = 1 << 40;

impl Totals {
    pub(super) fn new(limits: Limits) -> Totals {
        let histogram = || Histogram::new_with_max(LARGEST, 3).expect("three digits are valid");
        Totals {
            limits,
            storm_exits: 0,
            length: histogram(),
            duration_ns: histogram(),
            apart_ns: histogram(),
            places: FxHashMap::default(),
            left_out: 0,
            longest: Longest { kept: BinaryHeap::new(), limit: limits.longest },
        }
    }

    fn place(&mut self, address: u64) -> Option<&mut Counts> {
        if self.places.len() >= PLACES_MAX && !self.places.contains_key(&address) {
            return None;
        }
        Some(self.places.entry(address).or_default())
    }
}

/// The longest storms so far; the shortest of them is on top.
pub(super) struct Longest {
    kept: BinaryHeap<Reverse<Run>>,
    limit: usize,
}

impl Longest {
    fn offer(&mut self, run: Run) {
        self.kept.push(Reverse(run));
        if self.kept.len() > self.limit {
            self.kept.pop();
        }
    }

    /// Returns the storms, the longest first.
    pub(super) fn into_sorted(self, name: impl Fn(u64) -> String) -> Vec<Storm> {
        let runs = self.kept.into_sorted_vec();
        runs.into_iter().map(|Reverse(run)| run.storm(name(run.address))).collect()
    }
}

/// Consecutive PAUSE exits at one address so far, ordered by length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    length: u32,
    start_ns: u64,
    last_exit_ns: u64,
    last_ns: u64,
    address: u64,
    tid: u32,
    vcpu: Option<u32>,
}

impl Run {
    fn duration_ns(&self) -> u64 {
        self.last_ns - self.start_ns
    }

    fn storm(&self, place: String) -> Storm {
        Storm {
            tid: self.tid,
            vcpu: self.vcpu,
            place,
            start_s: self.start_ns as f64 / 1e9,
            length: self.length,
            duration_us: self.duration_ns() as f64 / 1e3,
        }
    }
}

/// State of one vCPU's thread.
#[derive(Debug, Default)]
pub(super) struct Track {
    vcpu: Option<u32>,
    last: Option<Event>,
    run: Option<Run>,
    pause_exits: u64,
    storms: u64,
    storm_ns: u64,
}

/// Order of an event relative to its thread's event before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The event is later, or it is a different one at the same time.
    Next,
    /// The event is the same again.
    Repeated,
    /// The event is earlier.
    Disordered,
}

impl Track {
    /// Returns the order of an event. In a trace from a kernel, the events of each thread are in
    /// order of time. Any other order shows that lines were moved, or that traces were merged.
    pub(super) fn order(&self, event: &Event) -> Order {
        match &self.last {
            Some(last) if event.t_ns < last.t_ns => Order::Disordered,
            Some(last) if event == last => Order::Repeated,
            _ => Order::Next,
        }
    }

    /// Processes an event whose order is [`Order::Next`].
    pub(super) fn step(&mut self, event: &Event, totals: &mut Totals) {
        self.last = Some(*event);
        self.vcpu = event.vcpu.or(self.vcpu);
        match event.what {
            What::Pause(address) => self.pause(event, address, totals),
            What::OtherExit => self.end_run(totals),
            What::Entry => {
                if let Some(run) = &mut self.run {
                    run.last_ns = event.t_ns;
                }
            }
        }
    }

    fn pause(&mut self, event: &Event, address: u64, totals: &mut Totals) {
        self.pause_exits += 1;
        let in_guest_max_ns = totals.limits.in_guest_max_ns;
        let goes_on = self
            .run
            .as_mut()
            .filter(|run| run.address == address && event.t_ns - run.last_ns <= in_guest_max_ns);
        if let Some(run) = goes_on {
            run.length = run.length.saturating_add(1);
            totals.apart_ns.saturating_record(event.t_ns - run.last_exit_ns);
            (run.last_exit_ns, run.last_ns) = (event.t_ns, event.t_ns);
            return;
        }
        self.end_run(totals);
        self.run = Some(Run {
            length: 1,
            start_ns: event.t_ns,
            last_exit_ns: event.t_ns,
            last_ns: event.t_ns,
            address,
            tid: event.tid,
            vcpu: self.vcpu,
        });
    }

    /// Ends the current run, which is a storm if it is long enough.
    pub(super) fn end_run(&mut self, totals: &mut Totals) {
        let Some(run) = self.run.take() else { return };
        let is_storm = run.length >= totals.limits.length_min;
        let exits = u64::from(run.length);
        match totals.place(run.address) {
            Some(place) => {
                place.pause_exits += exits;
                place.storm_exits += if is_storm { exits } else { 0 };
            }
            None => totals.left_out += exits,
        }
        if !is_storm {
            return;
        }
        self.storms += 1;
        self.storm_ns += run.duration_ns();
        totals.storm_exits += exits;
        totals.length.saturating_record(exits);
        totals.duration_ns.saturating_record(run.duration_ns());
        totals.longest.offer(run);
    }

    pub(super) fn storm_ns(&self) -> u64 {
        self.storm_ns
    }

    pub(super) fn vcpu(&self, tid: u32) -> Vcpu {
        Vcpu {
            tid,
            vcpu: self.vcpu,
            pause_exits: self.pause_exits,
            storms: self.storms,
            storm_s: self.storm_ns as f64 / 1e9,
        }
    }
}
