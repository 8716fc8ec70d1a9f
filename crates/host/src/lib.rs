//! A host, that is, a machine that runs VMs. The build machine is a host. So is the L1 of a nested
//! machine: its init runs the same [`LocalHost`], which [`NestedHost`] drives over the L1's control
//! channel.

mod cgroup;
mod clock_page;
mod injector;
pub mod interrupt;
mod kvm;
mod local;
mod nested;
pub mod truth;
pub mod vm;

use unspin_wire::{BootSpec, Booted, Failure, RunOutput, RunSpec};

pub use clock_page::ClockPage;
pub use injector::Injected;
pub use local::LocalHost;
pub use nested::NestedHost;
pub use truth::AskBy;

/// A host that starts VMs and runs jobs on them. After a failure, none of its VMs runs.
pub trait Host {
    /// Starts VMs, after stopping the VMs that run.
    fn boot(&mut self, spec: &BootSpec) -> Result<Booted, Failure>;

    /// Runs the subject's job. The neighbours' jobs start before and stop after it.
    fn run(&mut self, spec: &RunSpec) -> Result<RunOutput, Failure>;

    /// Stops all VMs.
    fn halt(&mut self);
}
