//! The hosts that boot an experiment's VMs. [`VtHost`] is simulated: it boots a guest for each run,
//! in virtual time. The hosts of [`unspin_host`] are real. [`Router`] picks the host that a boot
//! needs.

mod router;
pub mod vt;

pub use router::Router;
pub use vt::{Difference, VtHost, VtOptions, VtQemu, twice, vt_qemu};
pub(crate) use vt::{kernel_params, virtual_args};
