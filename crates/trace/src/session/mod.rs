//! The session file: a guest's findings about itself, as a gzipped Arrow IPC stream. Other programs
//! can read it, too, for instance Python: `pyarrow.ipc.open_stream(gzip.open(file))`.
//!
//! A row is a finding about the vCPU `vcpu`. `start_ns` and `end_ns` are nanoseconds of the guest's
//! CLOCK_MONOTONIC; `value` depends on `kind`:
//!
//! | `kind` | from start to end | `value` |
//! |---|---|---|
//! | `off` | off, after it had been on | nanoseconds that the start can be wrong by, either way |
//! | `wake` | off, after it had been idle and was asked to run | 0 |
//! | `look-on`, `look-off`, `look-idle` | an instant: the state that it seemed to be in | 0 |
//! | `spin-lock` | burned, waiting for a kernel spinlock | nanoseconds of it halted, not burned |
//! | `spin-mutex` | burned, waiting for a kernel mutex | 0 |
//! | `spin-ipi` | burned, waiting for other vCPUs to acknowledge a call | 0 |
//! | `wait-mutex` | asleep, waiting for a kernel mutex | 0 |
//! | `wait-rwsem` | asleep, waiting for a kernel reader-writer semaphore | 0 |
//! | `wait-futex` | asleep, waiting for a glibc mutex | 0 |
//! | `beats` | a period that the recorder covered, for each online vCPU | heartbeats added in it |
//! | `idle` | the same period | nanoseconds idle in it |
//! | `lost` | the same period | findings lost in it |
//! | `user-spin` | the same period | nanoseconds spent spinning in user space, as ticks found |
//! | `steal` | the same period | nanoseconds of steal time, as the hypervisor reports it |
//!
//! Only spins and waits have values in the other columns, and only if the values are known:
//!
//! - `lock`: the address of the lock.
//! - `tid`: the thread that waited.
//! - `site`: the function that requested the lock.
//! - `owner_tid`, `owner_vcpu` and `owner_state`: the lock's owner at the begin (state 1: running,
//!   2: runnable, 3: asleep).
//! - `owner_delay_ns`: how long, during a wait that slept, the owner was runnable while the guest
//!   ran other threads.
//! - `taken_vcpu` and `taken_ns`: of a spinlock, the waiter that last took it before, and when.
//!
//! Every batch (about a second) is a gzip member of its own, with its checksum, so a reader can use
//! what a recorder wrote before it was killed. The reader skips a batch that was cut off, and marks
//! the session as incomplete. A batch that is damaged, or that goes back in time, is an error.
//!
//! The schema's metadata holds `unspin.session`, the version of this table; a `kind` that the table
//! does not have is an error, too. The metadata may hold `unspin.program`, `unspin.kernel` and
//! `unspin.machine`, which identify the recorder and its guest, and `unspin.hidden`, which lists
//! what the kernel does not show. Version 1, which the reader also accepts, had no `user-spin` and
//! no `steal`.
//!
//! A reader uses the first batches, up to [`MAX_ROWS`] rows. It rejects a file with a batch larger
//! than [`MAX_BATCH_BYTES`], or with longer texts than [`MAX_SITE_BYTES`], [`MAX_SITES_BYTES`] and
//! [`MAX_ABOUT_BYTES`] allow.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use unspin_model::episode::Wait;
use unspin_model::session::About;

mod members;
mod reader;
mod writer;

pub use reader::{read, read_from};
pub use writer::{Stretch, Writer};

/// Maximum number of rows that a reader takes from a file.
pub const MAX_ROWS: usize = 1 << 24;
/// Maximum size of a batch in bytes, uncompressed.
pub const MAX_BATCH_BYTES: u64 = 1 << 30;
/// Maximum length of a site in bytes: the kernel's KSYM_NAME_LEN. A writer leaves out a longer one.
pub const MAX_SITE_BYTES: usize = 512;
/// Maximum length in bytes of the sites of all rows together. Each row gets a copy of its site,
/// even if a file has few different ones.
pub const MAX_SITES_BYTES: usize = 1 << 30;
/// Maximum length in bytes of each text about the recorder and its guest.
pub const MAX_ABOUT_BYTES: usize = 1 << 16;

/// Metadata key of the format's version.
const VERSION_KEY: &str = "unspin.session";
/// The format's version.
const VERSION: &str = "2";
/// Versions that the reader accepts: a later one only adds kinds of rows.
const READ: [&str; 2] = ["1", VERSION];

const OFF: &str = "off";
const WAKE: &str = "wake";
const LOOK_ON: &str = "look-on";
const LOOK_OFF: &str = "look-off";
const LOOK_IDLE: &str = "look-idle";
/// The kinds of rows about waits: name, what is waited for, and whether the thread sleeps. No
/// thread sleeps for a spinlock or an acknowledgement. The kernel does not report spins for a
/// semaphore or a glibc mutex.
const WAITS: [(&str, Wait, bool); 6] = [
    ("spin-lock", Wait::Spinlock, false),
    ("spin-mutex", Wait::Mutex, false),
    ("spin-ipi", Wait::Ipi, false),
    ("wait-mutex", Wait::Mutex, true),
    ("wait-rwsem", Wait::Rwsem, true),
    ("wait-futex", Wait::Futex, true),
];
const BEATS: &str = "beats";
const IDLE: &str = "idle";
const LOST: &str = "lost";
const USER_SPIN: &str = "user-spin";
const STEAL: &str = "steal";

/// Errors of reading and writing a session file.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The file could not be opened.
    #[error("cannot open {name}")]
    Open {
        /// Name of the file.
        name: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The file is empty.
    #[error("{name}: the session is empty")]
    Empty {
        /// Name of the file.
        name: String,
    },
    /// The file is not a session, or it is damaged.
    #[error("{name}, batch {batch}: {what}")]
    Damaged {
        /// Name of the file.
        name: String,
        /// Number of the batch, from 1; 0 is the head of the file.
        batch: usize,
        /// Description of the damage.
        what: String,
    },
    /// The session could not be written.
    #[error("cannot write the session")]
    Write(#[from] std::io::Error),
    /// Arrow could not build a batch.
    #[error("cannot put the session's table together")]
    Table(#[from] ArrowError),
}

/// Keys of [`About`] in the schema's metadata.
const PROGRAM_KEY: &str = "unspin.program";
const KERNEL_KEY: &str = "unspin.kernel";
const MACHINE_KEY: &str = "unspin.machine";
/// One entry a line; absent if it has no entries.
const HIDDEN_KEY: &str = "unspin.hidden";

/// Returns the schema, whose metadata holds `about`.
fn schema_of(about: &About) -> SchemaRef {
    let mut metadata = HashMap::from([(VERSION_KEY.to_owned(), VERSION.to_owned())]);
    let keys =
        [(PROGRAM_KEY, &about.program), (KERNEL_KEY, &about.kernel), (MACHINE_KEY, &about.machine)];
    for (key, value) in keys {
        metadata.extend(value.iter().map(|value| (key.to_owned(), value.clone())));
    }
    if !about.hidden.is_empty() {
        metadata.insert(HIDDEN_KEY.to_owned(), about.hidden.join("\n"));
    }
    Arc::new(schema().as_ref().clone().with_metadata(metadata))
}

fn schema() -> SchemaRef {
    let words = |key| DataType::Dictionary(Box::new(key), Box::new(DataType::Utf8));
    let fields = vec![
        Field::new("kind", words(DataType::Int8), false),
        Field::new("vcpu", DataType::UInt16, false),
        Field::new("start_ns", DataType::UInt64, false),
        Field::new("end_ns", DataType::UInt64, false),
        Field::new("value", DataType::UInt64, false),
        Field::new("lock", DataType::UInt64, true),
        Field::new("tid", DataType::UInt32, true),
        Field::new("site", words(DataType::Int32), true),
        Field::new("owner_tid", DataType::UInt32, true),
        Field::new("owner_vcpu", DataType::UInt16, true),
        Field::new("owner_state", DataType::UInt8, true),
        Field::new("owner_delay_ns", DataType::UInt64, true),
        Field::new("taken_vcpu", DataType::UInt16, true),
        Field::new("taken_ns", DataType::UInt64, true),
    ];
    Arc::new(Schema::new(fields))
}
