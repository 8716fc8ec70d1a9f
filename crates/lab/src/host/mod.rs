//! A host: where VMs run. The build machine is one; so is the L1 of a nested
//! machine, whose init runs the same [`LocalHost`] and is asked over its
//! control channel by [`NestedHost`].

mod cgroup;
mod injector;
mod kvm;
mod local;
mod nested;

pub use injector::Injected;
pub use local::LocalHost;
pub use nested::NestedHost;

use crate::wire::{Failure, HostReply, HostRequest};

/// Something that can start VMs and run jobs on them.
pub trait Host {
    /// Carries out a request. After a failure no VM runs any more.
    fn handle(&mut self, request: HostRequest) -> Result<HostReply, Failure>;
}
