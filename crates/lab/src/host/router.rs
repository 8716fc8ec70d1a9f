//! Picks the host that a boot needs: this machine, an L1 on it, or a simulated one.

use std::path::PathBuf;

use unspin_host::{AskBy, Host, LocalHost, NestedHost};
use unspin_model::FailureKind;
use unspin_wire::{BootSpec, Booted, Failure, L1Spec, RunOutput, RunSpec};

use super::{VtHost, VtOptions};

/// All the hosts of one worker.
pub struct Router<'a> {
    folder: PathBuf,
    local: LocalHost,
    virtual_time: Option<VtHost<'a>>,
    l1: Option<(L1Spec, NestedHost)>,
    active: Active,
}

/// The host that runs VMs now.
enum Active {
    Local,
    L1,
    VirtualTime,
}

impl<'a> Router<'a> {
    /// Hosts whose VMs keep their sockets and logs under `folder`. Without options for
    /// virtual time, boots that want it fail.
    pub fn new(folder: PathBuf, virtual_time: Option<VtOptions<'a>>) -> Router<'a> {
        Router {
            local: LocalHost::new(folder.clone(), AskBy::Page),
            virtual_time: virtual_time.map(|options| VtHost::new(folder.join("vt"), options)),
            l1: None,
            active: Active::Local,
            folder,
        }
    }

    fn active(&mut self) -> &mut dyn Host {
        match (&self.active, &mut self.l1, &mut self.virtual_time) {
            (Active::L1, Some((_, l1)), _) => l1,
            (Active::VirtualTime, _, Some(host)) => host,
            _ => &mut self.local,
        }
    }

    /// Makes the host that a boot needs the active one. An L1 serves the boots of one block
    /// that want the same one, as long as nothing fails on it and no VM beside it is measured.
    fn select(&mut self, spec: &BootSpec) -> Result<(), Failure> {
        if spec.virtual_host.is_some() {
            self.active = Active::VirtualTime;
            return match self.virtual_time {
                Some(_) => Ok(()),
                None => Err(Failure::new(FailureKind::Unavailable, "no QEMU for virtual time")),
            };
        }
        let Some(wanted) = &spec.l1 else {
            // Even an idle L1 takes pCPU time.
            self.stop_l1();
            self.active = Active::Local;
            return Ok(());
        };
        if self.l1.as_ref().is_none_or(|(running, _)| running != wanted.as_ref()) {
            self.stop_l1();
            let host = NestedHost::start(&wanted.vm, &self.folder.join("l1"))?;
            self.l1 = Some((wanted.as_ref().clone(), host));
        }
        self.active = Active::L1;
        Ok(())
    }

    fn stop_l1(&mut self) {
        if let Some((_, l1)) = self.l1.take() {
            l1.shut_down();
        }
    }

    /// Whatever went wrong on an L1 may be the L1's fault.
    fn or_stop<T>(&mut self, result: Result<T, Failure>) -> Result<T, Failure> {
        if result.is_err() {
            self.local.halt();
            self.stop_l1();
        }
        result
    }
}

impl Host for Router<'_> {
    fn boot(&mut self, spec: &BootSpec) -> Result<Booted, Failure> {
        let booted = self.select(spec).and_then(|()| self.active().boot(spec));
        self.or_stop(booted)
    }

    fn run(&mut self, spec: &RunSpec) -> Result<RunOutput, Failure> {
        let output = self.active().run(spec);
        self.or_stop(output)
    }

    fn halt(&mut self) {
        self.active().halt();
    }
}

impl Drop for Router<'_> {
    fn drop(&mut self) {
        self.local.halt();
        self.stop_l1();
    }
}
