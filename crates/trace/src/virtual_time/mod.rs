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
//! An *entity* is a vCPU that the host schedules: first the guest's own, by index, then those of
//! the modelled neighbours. Each starts idle. Time goes forward for each entity; within one
//! quantum, two pCPUs may write in either order. Counts of exits may follow the end event.

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
/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 32;
/// Length of an event in bytes.
pub const EVENT_BYTES: usize = 16;
/// Maximum number of events that are kept in memory: 512 MiB of a file. Exits are only counted.
pub const MAX_KEPT: usize = 1 << 25;
/// A storm has more pause-loop exits in a row than this (Ishiguro et al., VEE '21).
pub const STORM_MIN: u64 = 100;

/// The content of a record: the changes of state in the order of the file, and sums of the exits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// Number of simulated host CPUs.
    pub pcpus: u32,
    /// Number of the guest's vCPUs: entities 0 to `vcpus` - 1.
    pub vcpus: u32,
    /// Number of all entities, including the neighbours' vCPUs.
    pub entities: u32,
    /// Length of a round in virtual nanoseconds: the host reconsiders its schedule that often.
    pub quantum_ns: u64,
    /// Virtual time of the end, nanoseconds.
    pub end_ns: u64,
    /// Changes of state, marks and steals, in the order of the file. Other events are only counted.
    pub events: Vec<Event>,
    /// Sums of all recorded exits, by the code of their reason.
    pub exits: BTreeMap<u8, Exits>,
    /// Sums of the exits between the marks of the job's begin and end, by the code of their reason.
    pub job_exits: BTreeMap<u8, Exits>,
    /// Number of pause-loop exits between these marks, by the code of their outcome, see
    /// [`verdict_name`].
    pub job_pause_loops: BTreeMap<u8, u64>,
    /// Number of yields that the guest asked for between these marks, by the code of their outcome.
    pub job_yields: BTreeMap<u8, u64>,
    /// Number of pause-loop exits between these marks that were part of a storm: more than
    /// [`STORM_MIN`] of one vCPU in a row, with none of its other exits among them.
    pub job_storm_exits: u64,
    /// Number of preemptions of vCPUs between these marks, and number of those in a critical
    /// section, if the host knows.
    pub job_preemptions: [u64; 2],
    /// Number of pause loops between these marks that the host returned to the guest.
    pub job_reflections: u64,
    /// Number of the guest's answers to them, by the vCPU that gave the answer.
    pub job_answers: BTreeMap<(u16, Answer), u64>,
    /// The host's own count of all exits, by the code of their reason; empty if it left none.
    pub counted: BTreeMap<u8, u64>,
}

/// Sums of the exits for one reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exits {
    /// Number of exits.
    pub count: u64,
    /// Virtual nanoseconds that the host charged for them.
    pub price_ns: u64,
}

impl Exits {
    fn add(&mut self, price_ns: u32) {
        self.count += 1;
        self.price_ns += u64::from(price_ns);
    }
}

impl Record {
    /// Returns the events in time order; those of the same nanosecond stay in the order of the
    /// file.
    pub fn in_time_order(&self) -> Vec<&Event> {
        let mut events: Vec<&Event> = self.events.iter().collect();
        events.sort_by_key(|event| event.t_ns);
        events
    }

    /// Returns the virtual time of the first mark of a kind, in nanoseconds.
    pub fn mark_ns(&self, mark: Mark) -> Option<u64> {
        self.events.iter().find(|event| event.kind == Kind::Mark(mark)).map(|event| event.t_ns)
    }
}

/// Reads the record at `path`.
///
/// # Errors
/// Returns [`TraceError::Open`] if the file cannot be opened, and [`TraceError::Bytes`] with the
/// offset of what does not follow the format.
pub fn read(path: &Path) -> Result<Record, TraceError> {
    let file =
        File::open(path).map_err(|source| TraceError::Open { path: path.to_path_buf(), source })?;
    read_from(BufReader::with_capacity(1 << 16, file), &path.display().to_string())
}
