//! Picks the host that a boot needs: this machine, an L1 on it, or a simulated host.

use std::path::PathBuf;

use unspin_host::{AskBy, Host, LocalHost, NestedHost};
use unspin_model::FailureKind;
use unspin_wire::{BootSpec, Booted, Failure, L1Spec, RunOutput, RunSpec};

use super::{VtHost, VtOptions};

/// All hosts of one worker.
pub struct Router<'a> {
    folder: PathBuf,
    local: LocalHost,
    virtual_time: Option<VtHost<'a>>,
    l1: Option<(L1Spec, NestedHost)>,
    active: Active,
}

/// The host that currently runs VMs.
enum Active {
    Local,
    L1,
    VirtualTime,
}

impl<'a> Router<'a> {
    /// Makes a router whose hosts keep the sockets and logs of their VMs under `folder`. Boots that
    /// need virtual time fail if no options for it are given.
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

    /// Activates the host that a boot needs. An L1 is reused by the boots of one block that ask for
    /// the same L1, until something fails on it or a VM beside it is measured.
    fn select(&mut self, spec: &BootSpec) -> Result<(), Failure> {
        if spec.virtual_host.is_some() {
            self.active = Active::VirtualTime;
            return match self.virtual_time {
                Some(_) => Ok(()),
                None => Err(Failure::new(FailureKind::Unavailable, "no QEMU for virtual time")),
            };
        }
        let Some(wanted) = &spec.l1 else {
            // Even an idle L1 uses pCPU time.
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

    /// Stops the VMs and the L1 after a failure, because the L1 itself may have caused it.
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
