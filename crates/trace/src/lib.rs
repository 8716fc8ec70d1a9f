//! Storage and export of vCPU histories, and analysis of the traces of other tools.
//!
//! - [`recording`] keeps [`unspin_model::Recording`]s in a compact file that a person can read with
//!   `zcat`.
//! - [`perfetto`] turns recordings and sessions into a trace for the Perfetto viewer.
//! - [`session`] stores a guest's findings about itself.
//! - [`storms`] finds pause loops in a host's trace of KVM exits.
//! - [`episodes`] explains a guest's spins.
//! - [`digest`] and [`totals`] summarize a session.
//! - [`live`] keeps the last seconds of a session.
//! - [`virtual_time`] reads the record of a simulated host, and [`check`] checks it against the
//!   host's rules.

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
