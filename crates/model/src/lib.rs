//! The vocabulary of unspin. The lab and the simulator produce these records, and the report reads
//! them. The crate does no I/O.
//!
//! Conventions: times are `u64` nanoseconds named `*_ns`. Wall-clock figures for people are `f64`
//! seconds named `*_s`. The serialised form of each struct is the file format, so each field
//! documents its content.

pub mod ab;
pub mod cell;
pub mod claim;
pub mod class;
pub mod diagnosis;
pub mod episode;
pub mod event;
pub mod identity;
pub mod label;
pub mod metric;
pub mod run;
pub mod scheduler;
pub mod sensed;
pub mod session;
pub mod summary;

pub use cell::Cell;
pub use claim::{Claim, ClaimSource, ClaimSpec, Target};
pub use event::{Interval, Recording, VcpuEvent, VcpuState};
pub use identity::{Draw, Identity, Ingredients};
pub use label::{Accel, Label, Source};
pub use metric::{Better, Metric};
pub use run::{
    AGENT_MEMORY, CO_RUNNER_SHARE, CRITICAL_SHARE, FailureKind, Lengths, NAMED_SHARE,
    NeighbourResult, Outcome, PAUSE_EXITS, PREEMPTIONS, READY_TO_ON, REFLECTIONS, RunRecord,
    STORM_EXITS, TIMER_INTERRUPTS, TruthSummary, YIELDED_SHARE,
};
pub use sensed::SenseCheck;
pub use session::Session;
pub use summary::Summary;
