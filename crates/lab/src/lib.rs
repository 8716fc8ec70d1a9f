//! Real overcommitted VMs: kernels, guests, topologies, workloads and the run
//! matrix. Results are [`unspin_model`] records; what they say together is the
//! report's business.

pub mod clock;
mod clock_page;
pub mod experiment;
pub mod host;
pub mod image;
pub mod init;
pub mod interrupt;
pub mod kernel;
pub mod machine;
pub mod run;
pub mod toml_error;
pub mod truth;
pub mod vm;
pub mod wire;
pub mod workload;
