//! Pause-loop storms in a host's trace of KVM exits.
//!
//! A vCPU that spins leaves the guest with a PAUSE exit, so that its host can let
//! another vCPU run. Where that does not help, it comes back and exits again, at the
//! same instruction, having done nothing between: a storm. More than a hundred such
//! exits in a row, 4 to 26 us apart, are what Ishiguro, Yasuno, Aublin and Kono found
//! behind the collapse of overcommitted VMs (Mitigating Excessive vCPU Spinning in
//! VM-Agnostic KVM, VEE 2021).
//!
//! Read is the text of `perf script`, `trace-cmd report` or tracefs, of the events
//! kvm:kvm_exit and kvm:kvm_entry. Memory is bounded by the number of vCPUs and of
//! places in the code, not by the length of the trace.

mod line;
mod lines;
mod lost;
mod symbols;
mod track;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, BufRead};

use hdrhistogram::Histogram;
use rustc_hash::FxHashMap;
use serde::Serialize;

use line::{Event, What};
pub use symbols::{Symbols, SymbolsError};
pub use track::Storm;
use track::{Counts, Order, Totals, Track};

/// Threads and addresses that are counted apart. What comes later is only counted.
const TRACKS_MAX: usize = 65_536;
const PLACES_MAX: usize = 65_536;

/// What makes a storm.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// So many PAUSE exits in a row are a storm.
    pub length_min: u32,
    /// A vCPU that stayed in the guest for longer than this has done something there.
    pub in_guest_max_ns: u64,
    /// How many of the longest storms are kept.
    pub longest: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { length_min: 3, in_guest_max_ns: 1_000_000, longest: 10 }
    }
}

/// What a trace says about pause loops.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Storms {
    /// Lines read.
    pub lines: u64,
    /// Those that are neither kvm_exit nor kvm_entry, or cannot be read.
    pub lines_unknown: u64,
    /// Events that come before one of the same thread that is further up in the trace: they are
    /// counted here only. `null` where there is none.
    pub disordered: Option<LeftOut>,
    /// Events that are there again right behind themselves: they are counted here only.
    pub repeated: Option<LeftOut>,
    /// Events that the tracer lost, at least so many; `null` where it says of none.
    pub lost: Option<LeftOut>,
    /// Where the trace is cut off, if it is; a line that was cut off is not used.
    pub incomplete: Option<String>,
    /// From the first event to the last, seconds.
    pub span_s: f64,
    /// Exits, for any reason.
    pub exits: u64,
    /// Exits by PAUSE.
    pub pause_exits: u64,
    /// PAUSE exits that were part of a storm.
    pub storm_exits: u64,
    /// Their share of all PAUSE exits; `null` where there was none.
    pub storm_share: Option<f64>,
    /// Storms.
    pub storms: u64,
    /// vCPU time in storms, from the first exit of each to its last event, seconds.
    pub storm_s: f64,
    /// PAUSE exits of a storm.
    pub length: Option<Distribution>,
    /// Duration of a storm, microseconds.
    pub duration_us: Option<Distribution>,
    /// From one PAUSE exit to the next in a row, microseconds.
    pub apart_us: Option<Distribution>,
    /// Where the guest spun, most PAUSE exits first.
    pub places: Vec<Place>,
    /// PAUSE exits at places beyond the first 65,536, and events of threads beyond them.
    pub left_out: u64,
    /// vCPUs, most storm time first.
    pub vcpus: Vec<Vcpu>,
    /// The longest storms, longest first.
    pub longest: Vec<Storm>,
}

/// Events that are not used, or not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// How many.
    pub events: u64,
    /// The line of the first one, or that says so, from 1.
    pub first_line: u64,
}

impl LeftOut {
    fn add(all: &mut Option<LeftOut>, line: u64, events: u64) {
        let all = all.get_or_insert(LeftOut { events: 0, first_line: line });
        all.events = all.events.saturating_add(events);
    }
}

/// Percentiles, within 0.1 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Distribution {
    /// Smallest.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

/// A place in the guest's code.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Place {
    /// The function, or the address where no symbols were given.
    pub name: String,
    /// PAUSE exits there.
    pub pause_exits: u64,
    /// Those of them that were part of a storm.
    pub storm_exits: u64,
}

/// A vCPU's thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Vcpu {
    /// The thread.
    pub tid: u32,
    /// Its index in its VM, where the trace has it.
    pub vcpu: Option<u32>,
    /// PAUSE exits.
    pub pause_exits: u64,
    /// Storms.
    pub storms: u64,
    /// Time in storms, seconds.
    pub storm_s: f64,
}

/// Reads a trace, which may be gzipped, to its end. Lines without an event are counted, not
/// refused; what is cut off, out of order or repeated is marked in the result.
///
/// # Errors
/// What reading `input` says, with the line where it stopped.
pub fn read(input: impl BufRead, limits: Limits, symbols: Option<&Symbols>) -> io::Result<Storms> {
    let mut reader = Reader::new(limits);
    let (lines, incomplete) = lines::each(lines::decoded(input)?, |line| reader.line(line))?;
    Ok(Storms { incomplete, ..reader.finish(lines, symbols) })
}

struct Reader {
    tracks: FxHashMap<u32, Track>,
    totals: Totals,
    lines: u64,
    events: u64,
    disordered: Option<LeftOut>,
    repeated: Option<LeftOut>,
    lost: Option<LeftOut>,
    exits: u64,
    left_out: u64,
    first_ns: u64,
    last_ns: u64,
}

impl Reader {
    fn new(limits: Limits) -> Reader {
        Reader {
            tracks: FxHashMap::default(),
            totals: Totals::new(limits),
            lines: 0,
            events: 0,
            disordered: None,
            repeated: None,
            lost: None,
            exits: 0,
            left_out: 0,
            first_ns: u64::MAX,
            last_ns: 0,
        }
    }

    fn line(&mut self, line: &[u8]) {
        self.lines += 1;
        let Some(event) = line::parse(line) else {
            if let Some(events) = lost::events(line) {
                LeftOut::add(&mut self.lost, self.lines, events);
            }
            return;
        };
        self.events += 1;
        let full = self.tracks.len() >= TRACKS_MAX;
        let track = match self.tracks.entry(event.tid) {
            Entry::Vacant(_) if full => {
                self.left_out += 1;
                return self.count(&event);
            }
            track => track.or_default(),
        };
        match track.order(&event) {
            Order::Disordered => LeftOut::add(&mut self.disordered, self.lines, 1),
            Order::Repeated => LeftOut::add(&mut self.repeated, self.lines, 1),
            Order::Next => {
                track.step(&event, &mut self.totals);
                self.count(&event);
            }
        }
    }

    fn count(&mut self, event: &Event) {
        self.exits += u64::from(event.what != What::Entry);
        self.first_ns = self.first_ns.min(event.t_ns);
        self.last_ns = self.last_ns.max(event.t_ns);
    }

    fn finish(mut self, lines: u64, symbols: Option<&Symbols>) -> Storms {
        for track in self.tracks.values_mut() {
            track.end_run(&mut self.totals);
        }
        let totals = self.totals;
        let storm_ns: u64 = self.tracks.values().map(Track::storm_ns).sum();
        let mut vcpus: Vec<Vcpu> =
            self.tracks.iter().map(|(tid, track)| track.vcpu(*tid)).collect();
        vcpus.sort_by(|a, b| {
            b.storm_s
                .total_cmp(&a.storm_s)
                .then(b.pause_exits.cmp(&a.pause_exits))
                .then(a.tid.cmp(&b.tid))
        });
        let pause_exits = vcpus.iter().map(|vcpu| vcpu.pause_exits).sum();
        let storm_exits = totals.storm_exits;
        let name = |address| match symbols.and_then(|symbols| symbols.name(address)) {
            Some(name) => name.to_owned(),
            None => format!("{address:#x}"),
        };
        Storms {
            lines,
            lines_unknown: lines - self.events,
            disordered: self.disordered,
            repeated: self.repeated,
            lost: self.lost,
            incomplete: None,
            span_s: self.last_ns.saturating_sub(self.first_ns) as f64 / 1e9,
            exits: self.exits,
            pause_exits,
            storm_exits,
            storm_share: (pause_exits > 0).then(|| storm_exits as f64 / pause_exits as f64),
            storms: totals.length.len(),
            storm_s: storm_ns as f64 / 1e9,
            length: distribution(&totals.length, 1.0),
            duration_us: distribution(&totals.duration_ns, 1e3),
            apart_us: distribution(&totals.apart_ns, 1e3),
            places: places(&totals.places, name),
            left_out: self.left_out + totals.left_out,
            vcpus,
            longest: totals.longest.into_sorted(name),
        }
    }
}

/// Percentiles of a histogram, in units of `unit`; `None` where it is empty.
fn distribution(histogram: &Histogram<u64>, unit: f64) -> Option<Distribution> {
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / unit;
    (!histogram.is_empty()).then(|| Distribution {
        min: histogram.min() as f64 / unit,
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        max: histogram.max() as f64 / unit,
    })
}

/// Addresses of one function are one place.
fn places(by_address: &FxHashMap<u64, Counts>, name: impl Fn(u64) -> String) -> Vec<Place> {
    let mut by_name: HashMap<String, Counts> = HashMap::new();
    for (address, counts) in by_address {
        let place = by_name.entry(name(*address)).or_default();
        place.pause_exits += counts.pause_exits;
        place.storm_exits += counts.storm_exits;
    }
    let mut places: Vec<Place> = by_name
        .into_iter()
        .map(|(name, Counts { pause_exits, storm_exits })| Place { name, pause_exits, storm_exits })
        .collect();
    places.sort_by(|a, b| b.pause_exits.cmp(&a.pause_exits).then_with(|| a.name.cmp(&b.name)));
    places
}
