//! A host that is itself a guest: its init starts the VMs with the KVM in it.

use std::path::Path;
use std::time::Duration;

use unspin_model::FailureKind;

use super::Host;
use crate::vm::Vm;
use crate::wire::{Failure, HostReply, HostRequest, Reply, Request, VmSpec};

/// What starting a VM may take beyond its own limit, and what tearing it down may.
const SLACK: Duration = Duration::from_secs(60);

/// The L1 of a nested machine.
pub struct NestedHost {
    l1: Vm,
}

impl NestedHost {
    /// Boots the L1.
    pub fn start(spec: &VmSpec, folder: &Path) -> Result<NestedHost, Failure> {
        let l1 = Vm::start(spec, folder, |_| Ok(()))?;
        Ok(NestedHost { l1 })
    }

    /// Shuts the L1 down.
    pub fn shut_down(self) {
        self.l1.shut_down();
    }

    fn limit(request: &HostRequest) -> Duration {
        let seconds = match request {
            HostRequest::Boot { vms, .. } => vms.iter().map(|vm| vm.boot_limit_s).sum(),
            HostRequest::Run(run) => {
                let scheduler = if run.job.scheduler.is_some() { 80.0 } else { 0.0 };
                run.job.time_limit_s + scheduler + 60.0 * run.job.setup.len() as f64
            }
            HostRequest::Halt => 0.0,
        };
        Duration::from_secs_f64(seconds) + SLACK
    }
}

impl Host for NestedHost {
    fn handle(&mut self, request: HostRequest) -> Result<HostReply, Failure> {
        let limit = Self::limit(&request);
        match self.l1.ask(Request::Host(Box::new(request)), limit)? {
            Reply::Host(reply) => match *reply {
                HostReply::Failed(failure) => Err(failure),
                reply => Ok(reply),
            },
            other => Err(Failure::new(FailureKind::GuestHang, format!("the L1 said {other:?}"))),
        }
    }
}
