//! Pause-loop storms in a host's trace of KVM exits.
//!
//! A vCPU that spins leaves the guest with a PAUSE exit, so that its host can run another vCPU. If
//! that does not help, the vCPU returns to the guest and exits again at the same instruction,
//! without any progress between: a storm. Ishiguro, Yasuno, Aublin and Kono found that storms of
//! more than a hundred exits in a row, 4 to 26 us apart, cause the collapse of overcommitted VMs
//! (Mitigating Excessive vCPU Spinning in VM-Agnostic KVM, VEE 2021).
//!
//! The input is the text of `perf script`, `trace-cmd report` or tracefs with the events
//! kvm:kvm_exit and kvm:kvm_entry. The number of vCPUs and of places in the code bounds the memory
//! that the reader needs; the length of the trace does not matter.

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

/// Maximum numbers of threads and of addresses that the reader counts separately. It counts the
/// events of later ones in `Storms::left_out`.
const TRACKS_MAX: usize = 65_536;
const PLACES_MAX: usize = 65_536;

/// Criteria of a storm.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Minimum number of PAUSE exits in a row that make a storm.
    pub length_min: u32,
    /// Maximum time in the guest between two exits of a row, in nanoseconds. A vCPU that stayed
    /// there for longer made progress.
    pub in_guest_max_ns: u64,
    /// Number of the longest storms to keep.
    pub longest: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { length_min: 3, in_guest_max_ns: 1_000_000, longest: 10 }
    }
}

/// The pause loops that a trace shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Storms {
    /// Number of lines read.
    pub lines: u64,
    /// Number of lines that are neither kvm_exit nor kvm_entry, or cannot be parsed.
    pub lines_unknown: u64,
    /// Events whose time is before that of a previous event of the same thread in the trace. They
    /// are counted here only; `null` if there are none.
    pub disordered: Option<LeftOut>,
    /// Events that repeat the previous event of their thread. They are counted here only; `null` if
    /// there are none.
    pub repeated: Option<LeftOut>,
    /// Events that the tracer lost, as a lower bound; `null` if it reports no loss.
    pub lost: Option<LeftOut>,
    /// Where the trace is cut off, if it is; the reader does not use a line that is cut off.
    pub incomplete: Option<String>,
    /// Time from the first event to the last in seconds.
    pub span_s: f64,
    /// Number of exits for any reason.
    pub exits: u64,
    /// Number of exits by PAUSE.
    pub pause_exits: u64,
    /// Number of PAUSE exits that were part of a storm.
    pub storm_exits: u64,
    /// Share of PAUSE exits that were part of a storm; `null` if the trace has no PAUSE exit.
    pub storm_share: Option<f64>,
    /// Number of storms.
    pub storms: u64,
    /// vCPU-seconds in storms, each from its first exit to its last event.
    pub storm_s: f64,
    /// PAUSE exits in a storm.
    pub length: Option<Distribution>,
    /// Duration of a storm in microseconds.
    pub duration_us: Option<Distribution>,
    /// Time from one PAUSE exit to the next in a row, in microseconds.
    pub apart_us: Option<Distribution>,
    /// Places where the guest spun, the one with the most PAUSE exits first.
    pub places: Vec<Place>,
    /// Number of PAUSE exits at places beyond the first 65,536, and of events of threads beyond as
    /// many.
    pub left_out: u64,
    /// vCPUs, the one with the most time in storms first.
    pub vcpus: Vec<Vcpu>,
    /// The longest storms, the longest first.
    pub longest: Vec<Storm>,
}

/// A number of events that were not used, or that are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Number of events.
    pub events: u64,
    /// Number of the line with the first such event, or with the first report of a loss, from 1.
    pub first_line: u64,
}

impl LeftOut {
    fn add(all: &mut Option<LeftOut>, line: u64, events: u64) {
        let all = all.get_or_insert(LeftOut { events: 0, first_line: line });
        all.events = all.events.saturating_add(events);
    }
}

/// Percentiles, accurate to 0.1 %.
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
    /// Name of the function, or the address if no symbol is known for it.
    pub name: String,
    /// Number of PAUSE exits at this place.
    pub pause_exits: u64,
    /// Number of these exits that were part of a storm.
    pub storm_exits: u64,
}

/// The thread of a vCPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Vcpu {
    /// Id of the thread.
    pub tid: u32,
    /// Index of the vCPU in its VM, if the trace has it.
    pub vcpu: Option<u32>,
    /// Number of PAUSE exits.
    pub pause_exits: u64,
    /// Number of storms.
    pub storms: u64,
    /// Time in storms in seconds.
    pub storm_s: f64,
}

/// Reads a trace, which may be gzipped, to its end. Counts lines without an event, instead of
/// rejecting them; the result shows what is cut off, out of order or repeated.
///
/// # Errors
/// Returns the error of reading `input`, with the line where it stopped.
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

/// Returns the percentiles of a histogram in units of `unit`; `None` if it is empty.
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

/// Returns the counts by place: all addresses of one function are one place.
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
