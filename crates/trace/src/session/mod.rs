//! The session file: what a guest found out about itself, as a gzipped Arrow IPC stream.
//! Others read it too, for instance Python: `pyarrow.ipc.open_stream(gzip.open(file))`.
//!
//! A row is a finding. `vcpu` is the vCPU that it is about; `start_ns` and `end_ns` are
//! nanoseconds of the guest's CLOCK_MONOTONIC; `value` depends on `kind`:
//!
//! | `kind` | from start to end | `value` |
//! |---|---|---|
//! | `off` | off, after it had been on | nanoseconds that the start can be wrong by, either way |
//! | `wake` | off, after it had been idle and was asked to run | 0 |
//! | `look-on`, `look-off`, `look-idle` | an instant: what it seemed to be doing | 0 |
//! | `spin-lock` | burned, waiting for a kernel spinlock | nanoseconds of it halted, not burned |
//! | `spin-mutex` | burned, waiting for a kernel mutex | 0 |
//! | `spin-ipi` | burned, waiting for other vCPUs to acknowledge a call | 0 |
//! | `wait-mutex` | asleep, waiting for a kernel mutex | 0 |
//! | `wait-rwsem` | asleep, waiting for a kernel reader-writer semaphore | 0 |
//! | `wait-futex` | asleep, waiting for a mutex of glibc | 0 |
//! | `beats` | a stretch that was covered, of each vCPU online | heartbeats added to it |
//! | `idle` | the same stretch | nanoseconds idle in it |
//! | `lost` | the same stretch | findings lost in it |
//! | `user-spin` | the same stretch | nanoseconds spent spinning in user space, as ticks found |
//! | `steal` | the same stretch | nanoseconds of steal time, as the hypervisor reports it |
//!
//! Only spins and waits have values in the other columns, and only where they are known:
//! `lock` (an address), `tid` (the thread that waited), `site` (the function that wanted the
//! lock), `owner_tid`, `owner_vcpu` and `owner_state` (the lock's owner at the begin; 1: it
//! ran, 2: it wanted to, 3: it was asleep), `owner_delay_ns` (how long during a wait that
//! slept the owner wanted to run and the guest let others run), `taken_vcpu` and `taken_ns`
//! (a spinlock: who took it last before, of those who waited).
//!
//! Every batch (about a second) is a gzip member of its own, with its checksum, so what a
//! recorder had written before it was killed can be read: a batch that was cut off is passed
//! over, and the session is marked as incomplete; one that was damaged, or that goes back in
//! time, is an error. The schema's metadata holds
//! `unspin.session`, the version of this table; a `kind` that is not in it is an error, too. It
//! may hold `unspin.program`, `unspin.kernel` and `unspin.machine`: who recorded, and where.
//! Version 1, which is read as well, had no `user-spin` and no `steal`.
//!
//! A reader takes the batches of [`MAX_ROWS`] rows at most, and [`MAX_BATCH_BYTES`] of a batch.
//! It refuses a file with longer texts than [`MAX_SITE_BYTES`], [`MAX_SITES_BYTES`] and
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

/// Most rows that are read from a file.
pub const MAX_ROWS: usize = 1 << 24;
/// Most bytes of one batch.
pub const MAX_BATCH_BYTES: u64 = 1 << 30;
/// Most bytes of a site: the kernel's KSYM_NAME_LEN. A writer leaves a longer one out.
pub const MAX_SITE_BYTES: usize = 512;
/// Most bytes of the sites of all rows: however few a file has, each row gets a copy.
pub const MAX_SITES_BYTES: usize = 1 << 30;
/// Most bytes of each text about who recorded, and where.
pub const MAX_ABOUT_BYTES: usize = 1 << 16;

/// The key of the format's version in the schema's metadata.
const VERSION_KEY: &str = "unspin.session";
/// The format's version.
const VERSION: &str = "2";
/// Those that are read: what a later one has is new kinds of rows.
const READ: [&str; 2] = ["1", VERSION];

const OFF: &str = "off";
const WAKE: &str = "wake";
const LOOK_ON: &str = "look-on";
const LOOK_OFF: &str = "look-off";
const LOOK_IDLE: &str = "look-idle";
/// What is waited for, and whether asleep, by the row's kind. Nobody sleeps for a spinlock
/// or an acknowledgement; spins for a semaphore or a mutex of glibc the kernel does not tell.
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

/// What can be wrong with a session file.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The file could not be opened.
    #[error("cannot open {name}")]
    Open {
        /// The file.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// It holds nothing.
    #[error("{name}: the session is empty")]
    Empty {
        /// The file.
        name: String,
    },
    /// It is something else, or damaged.
    #[error("{name}, batch {batch}: {what}")]
    Damaged {
        /// The file.
        name: String,
        /// Which batch, from 1; 0 is the head of the file.
        batch: usize,
        /// What is wrong there.
        what: String,
    },
    /// It could not be written.
    #[error("cannot write the session")]
    Write(#[from] std::io::Error),
    /// A batch could not be put together.
    #[error("cannot put the session's table together")]
    Table(#[from] ArrowError),
}

/// Keys of [`About`] in the schema's metadata.
const PROGRAM_KEY: &str = "unspin.program";
const KERNEL_KEY: &str = "unspin.kernel";
const MACHINE_KEY: &str = "unspin.machine";
/// A line each; not there if there is none.
const HIDDEN_KEY: &str = "unspin.hidden";

/// The schema, with what is known about where the session is recorded.
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
