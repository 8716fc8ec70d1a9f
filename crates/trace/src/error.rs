//! The errors of reading and writing recordings.

use std::io;
use std::path::PathBuf;

/// An error of reading or writing a file.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be opened or created.
    #[error("cannot open {}", path.display())]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Bytes could not be written, for instance because the disk is full.
    #[error("cannot write the recording")]
    Write(#[from] io::Error),
    /// The file ends early or is not valid gzip data.
    #[error("{name}, line {line}: the file is cut off or damaged")]
    Read {
        /// Name of the file.
        name: String,
        /// Number of the line that could not be read, from 1.
        line: u64,
        /// The decoder's error.
        source: io::Error,
    },
    /// A line does not have the expected content.
    #[error("{name}, line {line}: {what}")]
    Line {
        /// Name of the file.
        name: String,
        /// Number of the line, from 1.
        line: u64,
        /// Description of the error.
        what: String,
    },
    /// Binary data does not follow its format.
    #[error("{name}, byte {offset}: {what}")]
    Bytes {
        /// Name of the file.
        name: String,
        /// Byte offset of the error, from 0.
        offset: u64,
        /// Description of the error.
        what: String,
    },
    /// A recording breaks a rule of its format. The writer did not write it.
    #[error("recording of `{vm}`: {what}")]
    Invalid {
        /// Name of the VM.
        vm: String,
        /// Description of the broken rule.
        what: String,
    },
}
