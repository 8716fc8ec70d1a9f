//! Storage and export of vCPU histories, and what traces of other tools say.
//!
//! [`recording`] keeps [`unspin_model::Recording`]s in a compact file that a
//! person can read with `zcat`; [`perfetto`] turns them into a trace for the
//! Perfetto viewer; [`session`] keeps what a guest found out about itself; [`storms`]
//! finds pause loops in a host's trace of KVM exits.

pub mod error;
pub mod perfetto;
pub mod recording;
pub mod session;
pub mod storms;

pub use error::TraceError;
