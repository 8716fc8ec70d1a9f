//! The recording file: gzip over lines of text.
//!
//! ```text
//! {"format":1,"vm":"subject","vcpus":2,"start_ns":100,"end_ns":900,"alignment_error_ns":7,"lost":0,"events":3}
//! 0 0 on
//! 0 1 idle
//! 250 0 off
//! ```
//!
//! A header line opens each recording and says how many event lines follow.
//! An event line holds the nanoseconds since the event before (the first one:
//! since `start_ns`), the vCPU and the state entered, with one space between.
//! A file may hold any number of recordings, one after the other.
//!
//! Limits, so that a damaged or hostile file cannot exhaust memory:
//! [`MAX_RECORDINGS`], [`MAX_EVENTS`], [`MAX_VCPUS`] and [`MAX_LINE_BYTES`]. At 16 bytes
//! an event, a reader holds at most about 270 MB. The writer keeps to the same limits.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;

use serde::{Deserialize, Serialize};
use unspin_model::{Recording, VcpuState};

use crate::TraceError;

mod reader;
mod writer;

pub use reader::read_from;
pub use writer::write_to;

/// Maximum number of recordings in a file.
pub const MAX_RECORDINGS: usize = 4096;
/// Maximum number of events in a file, all recordings together.
pub const MAX_EVENTS: usize = 1 << 24;
/// Maximum number of vCPUs in a file, all recordings together. Each vCPU becomes a lane, with or
/// without events. The limit is that of [`MAX_RECORDINGS`] machines of 256 vCPUs.
pub const MAX_VCPUS: usize = 1 << 20;
/// Maximum length of a line in bytes, including its newline.
pub const MAX_LINE_BYTES: usize = 4096;

/// Version of the format, written into every header.
const FORMAT: u32 = 1;

/// A recording's first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: u32,
    vm: String,
    vcpus: u16,
    start_ns: u64,
    end_ns: u64,
    alignment_error_ns: u64,
    lost: u64,
    /// Number of event lines that follow.
    events: usize,
}

impl Header {
    fn of(recording: &Recording) -> Header {
        Header {
            format: FORMAT,
            vm: recording.vm.clone(),
            vcpus: recording.vcpus,
            start_ns: recording.start_ns,
            end_ns: recording.end_ns,
            alignment_error_ns: recording.alignment_error_ns,
            lost: recording.lost,
            events: recording.events.len(),
        }
    }
}

fn state_name(state: VcpuState) -> &'static str {
    match state {
        VcpuState::On => "on",
        VcpuState::Off => "off",
        VcpuState::Idle => "idle",
    }
}

/// Writes recordings to a file at `path`. The new file replaces an existing one only after it is on
/// the disk.
///
/// # Errors
/// Returns [`TraceError::Open`] or [`TraceError::Write`] if the file cannot be written. Returns
/// [`TraceError::Invalid`] for a recording that breaks the format's rules: events out of time order
/// or outside of the window, an unknown vCPU, an exceeded limit.
pub fn write(path: &Path, recordings: &[Recording]) -> Result<(), TraceError> {
    let open = |source| TraceError::Open { path: path.to_path_buf(), source };
    let new = path.with_extension("new");
    let file = File::create(&new).map_err(open)?;
    let written = write_to(BufWriter::new(&file), recordings);
    written
        .and_then(|()| file.sync_all().and_then(|()| std::fs::rename(&new, path)).map_err(open))
        .inspect_err(|_| {
            let _ = std::fs::remove_file(&new);
        })
}

/// Reads all recordings of the file at `path`.
///
/// # Errors
/// Returns [`TraceError::Open`] if the file cannot be opened. Returns [`TraceError::Read`] or
/// [`TraceError::Line`] with the line's number if the file is cut off or damaged.
pub fn read(path: &Path) -> Result<Vec<Recording>, TraceError> {
    let file =
        File::open(path).map_err(|source| TraceError::Open { path: path.to_path_buf(), source })?;
    read_from(BufReader::new(file), &path.display().to_string())
}
