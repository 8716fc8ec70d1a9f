//! Real overcommitted VMs: guests, topologies, workloads and the run matrix.
//!
//! Kernels come from [`unspin_sources`]. Results are [`unspin_model`] records; the
//! report crate draws conclusions from them.

pub mod experiment;
pub mod fuzz;
pub mod host;
pub mod image;
mod latency;
pub mod machine;
pub mod run;
mod sensed;
mod shipped;
pub mod toml_error;
pub mod workload;

pub use unspin_host::interrupt;
