//! A host that is itself a guest. Its init starts the VMs on the guest's own KVM.

use std::path::Path;
use std::time::Duration;

use unspin_model::FailureKind;
use unspin_wire::{
    BootSpec, Booted, Failure, HostReply, HostRequest, Reply, Request, RunOutput, RunSpec,
    SETUP_LIMIT_S, VmSpec,
};

use crate::Host;
use crate::vm::Vm;

/// The time that starting a VM may take beyond its own limit, and the time that its teardown may
/// take.
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

    fn ask(&mut self, request: HostRequest) -> Result<HostReply, Failure> {
        let limit = limit(&request);
        match self.l1.ask(Request::Host(Box::new(request)), limit)? {
            Reply::Host(reply) => match *reply {
                HostReply::Failed(failure) => Err(failure),
                reply => Ok(reply),
            },
            other => Err(unexpected(&other)),
        }
    }
}

fn limit(request: &HostRequest) -> Duration {
    let seconds = match request {
        HostRequest::Boot(spec) => spec.vms.iter().map(|vm| vm.boot_limit_s).sum(),
        HostRequest::Run(run) => {
            let scheduler = if run.job.scheduler.is_some() { 80.0 } else { 0.0 };
            // The L1 sets up the neighbours first.
            let jobs = run.neighbours.iter().chain([&run.job]);
            let setups: usize = jobs.map(|job| job.setup.len()).sum();
            run.job.time_limit_s + scheduler + f64::from(SETUP_LIMIT_S) * setups as f64
        }
        HostRequest::Halt => 0.0,
    };
    Duration::from_secs_f64(seconds) + SLACK
}

fn unexpected(reply: &impl std::fmt::Debug) -> Failure {
    Failure::new(FailureKind::BadReply, format!("the L1 said {reply:?}"))
}

impl Host for NestedHost {
    fn boot(&mut self, spec: &BootSpec) -> Result<Booted, Failure> {
        // The L1 is the machine in between; its own VMs have no L1.
        let spec = BootSpec { l1: None, ..spec.clone() };
        match self.ask(HostRequest::Boot(Box::new(spec)))? {
            HostReply::Booted(booted) => Ok(booted),
            other => Err(unexpected(&other)),
        }
    }

    fn run(&mut self, spec: &RunSpec) -> Result<RunOutput, Failure> {
        match self.ask(HostRequest::Run(Box::new(spec.clone())))? {
            HostReply::Ran(output) => Ok(*output),
            other => Err(unexpected(&other)),
        }
    }

    /// Stops the L1's VMs. An L1 that fails to stop them fails at its next boot.
    fn halt(&mut self) {
        let _ = self.ask(HostRequest::Halt);
    }
}
