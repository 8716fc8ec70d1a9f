//! The record of a virtual-time run: every change that the simulated host made.
//!
//! QEMU writes it, so it is complete and exact: nothing is sampled, no clock is
//! aligned and no event is lost. The file is little endian: a header of
//! [`HEADER_BYTES`], then events of [`EVENT_BYTES`].
//!
//! ```text
//! header  magic "UNSPINVT", u32 version, u32 pcpus, u32 vcpus, u32 entities, u64 quantum ns
//! event   u64 virtual ns, u8 kind, u8 pcpu (255: none), u16 entity, u32 argument
//! ```
//!
//! An *entity* is a vCPU that the host schedules: first the guest's own, by index,
//! then those of the modelled neighbours. Each starts idle. Time goes forward for
//! each entity; within one quantum, two pCPUs may write in either order. Behind the
//! end event there may be counts of exits.

mod event;
mod injected;
mod reader;
mod truth;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

pub use event::{Answer, Event, Kind, Mark, reason_name, verdict_name};
pub use reader::read_from;
pub use truth::{Clock, Truth};

use crate::TraceError;

/// The first bytes of a record.
pub const MAGIC: [u8; 8] = *b"UNSPINVT";
/// The version of the format that this crate reads and writes.
pub const VERSION: u32 = 1;
/// Length of the header.
pub const HEADER_BYTES: usize = 32;
/// Length of an event.
pub const EVENT_BYTES: usize = 16;
/// Most events that are kept in memory: 512 MiB of a file. Exits are only counted.
pub const MAX_KEPT: usize = 1 << 25;
/// A storm has more pause-loop exits in a row than this (Ishiguro et al., VEE '21).
pub const STORM_MIN: u64 = 100;

/// What a record holds: the changes of state in the order of the file, and the exits in sums.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// Simulated host CPUs.
    pub pcpus: u32,
    /// vCPUs of the guest: entities 0 to `vcpus` - 1.
    pub vcpus: u32,
    /// All entities, the neighbours' vCPUs included.
    pub entities: u32,
    /// Virtual nanoseconds of a round: the host looks again that often.
    pub quantum_ns: u64,
    /// Virtual time of the end, nanoseconds.
    pub end_ns: u64,
    /// Every event but exits, pause-loop exits and yields.
    pub events: Vec<Event>,
    /// All recorded exits by their reason's code.
    pub exits: BTreeMap<u8, Exits>,
    /// Those between the marks of the job's begin and end.
    pub job_exits: BTreeMap<u8, Exits>,
    /// Pause-loop exits between these marks, by what they ended in, see [`verdict_name`].
    pub job_pause_loops: BTreeMap<u8, u64>,
    /// Yields that the guest asked for between these marks, by what they ended in.
    pub job_yields: BTreeMap<u8, u64>,
    /// Those of them that were part of a storm: more than [`STORM_MIN`] of one vCPU in a row,
    /// with no other exit of it among them.
    pub job_storm_exits: u64,
    /// How often a vCPU was preempted between these marks, and how often of these in a critical
    /// section, where the host knows.
    pub job_preemptions: [u64; 2],
    /// Pause loops between these marks that went back to the guest.
    pub job_reflections: u64,
    /// The guest's answers to them, each with the vCPU that gave it.
    pub job_answers: BTreeMap<(u16, Answer), u64>,
    /// The host's own count of all exits, by reason, where it left one.
    pub counted: BTreeMap<u8, u64>,
}

/// Exits of one reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exits {
    /// How many.
    pub count: u64,
    /// Virtual nanoseconds that they were charged.
    pub price_ns: u64,
}

impl Exits {
    fn add(&mut self, price_ns: u32) {
        self.count += 1;
        self.price_ns += u64::from(price_ns);
    }
}

impl Record {
    /// Events in time order; those of the same nanosecond stay in the order of the file.
    pub fn in_time_order(&self) -> Vec<&Event> {
        let mut events: Vec<&Event> = self.events.iter().collect();
        events.sort_by_key(|event| event.t_ns);
        events
    }

    /// Virtual time of the first mark of a kind.
    pub fn mark_ns(&self, mark: Mark) -> Option<u64> {
        self.events.iter().find(|event| event.kind == Kind::Mark(mark)).map(|event| event.t_ns)
    }
}

/// Reads the record at `path`.
///
/// # Errors
/// [`TraceError::Open`] for the file; [`TraceError::Bytes`] with the offset of what does
/// not follow the format.
pub fn read(path: &Path) -> Result<Record, TraceError> {
    let file =
        File::open(path).map_err(|source| TraceError::Open { path: path.to_path_buf(), source })?;
    read_from(BufReader::with_capacity(1 << 16, file), &path.display().to_string())
}
