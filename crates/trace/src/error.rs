//! What can go wrong with a recording.

use std::io;
use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be opened or created.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Bytes could not be written, for instance because the disk is full.
    #[error("cannot write the recording")]
    Write(#[from] io::Error),
    /// The file ends early or is not valid gzip data.
    #[error("{name}, line {line}: the file is cut off or damaged")]
    Read {
        /// The file's name.
        name: String,
        /// The line that could not be read, counted from 1.
        line: u64,
        /// What the decoder says.
        source: io::Error,
    },
    /// A line does not say what it should.
    #[error("{name}, line {line}: {what}")]
    Line {
        /// The file's name.
        name: String,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// Binary data does not follow its format.
    #[error("{name}, byte {offset}: {what}")]
    Bytes {
        /// The file's name.
        name: String,
        /// Offset of what is wrong, from 0.
        offset: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A recording breaks the rules of its format, so it was not written.
    #[error("recording of `{vm}`: {what}")]
    Invalid {
        /// The VM's name.
        vm: String,
        /// Which rule it breaks.
        what: String,
    },
}
