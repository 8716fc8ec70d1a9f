//! Storage and export of vCPU histories, and what traces of other tools say.
//!
//! [`recording`] keeps [`unspin_model::Recording`]s in a compact file that a
//! person can read with `zcat`; [`perfetto`] turns them into a trace for the
//! Perfetto viewer; [`session`] keeps what a guest found out about itself; [`storms`]
//! finds pause loops in a host's trace of KVM exits; [`episodes`] explains a guest's
//! spins, [`digest`] and [`totals`] sum a session up; [`live`] keeps its last seconds;
//! [`virtual_time`] reads what a simulated host did, and [`check`] holds it to its rules.

pub mod check;
pub mod digest;
pub mod episodes;
pub mod error;
pub mod live;
pub mod perfetto;
pub mod recording;
pub mod session;
pub mod storms;
pub mod totals;
pub mod virtual_time;

pub use error::TraceError;
