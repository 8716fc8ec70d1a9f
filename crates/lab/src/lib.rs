//! Real overcommitted VMs: guests, topologies, workloads and the run matrix.
//!
//! Kernels come from [`unspin_sources`]. Results are [`unspin_model`] records; the
//! report crate draws conclusions from them.

mod clock_page;
pub mod experiment;
pub mod host;
pub mod image;
pub mod init;
pub mod interrupt;
pub mod machine;
pub mod run;
pub mod toml_error;
pub mod truth;
pub mod vm;
pub mod workload;
