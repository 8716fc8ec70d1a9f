//! The vocabulary of unspin. Everything else speaks it: the lab and the
//! simulator produce these records, the report reads them. No I/O here.
//!
//! Conventions: times are `u64` nanoseconds named `*_ns`; wall-clock figures
//! that a person reads are `f64` seconds named `*_s`; the serialised form of
//! each struct is the file format, so each field says what it holds.

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
