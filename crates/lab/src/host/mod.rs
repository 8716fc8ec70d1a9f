//! The hosts of an experiment's boots: [`VtHost`] is simulated, with one boot a run, in
//! virtual time; those of [`unspin_host`] are real. [`Router`] picks the one that a boot needs.

mod router;
pub mod vt;

pub use router::Router;
pub use vt::{Difference, VtHost, VtOptions, VtQemu, twice, vt_qemu};
pub(crate) use vt::{kernel_params, virtual_args};
