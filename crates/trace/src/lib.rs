//! Storage and export of vCPU histories.
//!
//! [`recording`] keeps [`unspin_model::Recording`]s in a compact file that a
//! person can read with `zcat`; [`perfetto`] turns them into a trace for the
//! Perfetto viewer.

pub mod error;
pub mod perfetto;
pub mod recording;

pub use error::TraceError;
