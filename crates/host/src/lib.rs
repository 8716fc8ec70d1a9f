//! A host: where VMs run. The build machine is one; so is the L1 of a nested
//! machine, whose init runs the same [`LocalHost`] and is asked over its
//! control channel by [`NestedHost`].

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

/// Something that can start VMs and run jobs on them. After a failure no VM of it runs.
pub trait Host {
    /// Starts VMs, in place of those that run.
    fn boot(&mut self, spec: &BootSpec) -> Result<Booted, Failure>;

    /// Runs the subject's job; the neighbours' jobs start before and stop after it.
    fn run(&mut self, spec: &RunSpec) -> Result<RunOutput, Failure>;

    /// Stops all VMs.
    fn halt(&mut self);
}
