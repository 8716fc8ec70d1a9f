//! The host that this process runs on.

use std::path::PathBuf;
use std::time::Duration;

use unspin_model::{FailureKind, TruthSummary};
use unspin_wire::clock::{mono_ns, process_cpu_s};
use unspin_wire::{BootSpec, Booted, Failure, JobResult, RunOutput, RunSpec};

use crate::Host;
use crate::cgroup::Groups;
use crate::injector::Injector;
use crate::kvm;
use crate::truth::{self, Alignment, AskBy, Observed, Observer, Totals};
use crate::vm::{Vm, if_answered};

/// The time for which the neighbours run before the subject starts.
const LEAD: Duration = Duration::from_millis(300);

/// This machine as a host.
pub struct LocalHost {
    folder: PathBuf,
    ask_by: AskBy,
    groups: Option<Groups>,
    vms: Vec<Vm>,
}

impl LocalHost {
    /// Returns a host whose VMs keep their sockets and logs under `folder`.
    pub fn new(folder: PathBuf, ask_by: AskBy) -> LocalHost {
        LocalHost { folder, ask_by, groups: None, vms: Vec::new() }
    }

    fn try_boot(&mut self, spec: &BootSpec) -> Result<Booted, Failure> {
        self.halt();
        // `self` owns the groups at once. After a failure, they are removed after the VMs in them.
        let groups = self.groups.insert(Groups::create(spec.fairness)?);
        for vm in &spec.vms {
            if let Some(on) = vm.pause_exits {
                kvm::set_pause_exits(on)?;
            }
            let folder = self.folder.join(&vm.name);
            let started = Vm::start(vm, &folder, |pid| groups.place(&vm.name, pid))?;
            self.vms.push(started);
        }
        let boot_s = self.vms.first().map_or(0.0, |vm| vm.boot_s);
        let hellos = self.vms.iter().map(|vm| vm.hello.clone()).collect();
        Ok(Booted { hellos, boot_s })
    }

    fn try_run(&mut self, spec: &RunSpec) -> Result<RunOutput, Failure> {
        let handles = self.start_neighbours(spec)?;
        let subject = self.vms.first_mut().ok_or_else(not_booted)?;
        let shift = kvm::counter_shift(subject.pid(), subject.spec.vcpus);
        let before = truth::align(subject, shift, self.ask_by)?;
        let threads = subject.vcpu_threads.clone();
        let observer = Observer::start(spec.truth, subject.pid(), &threads);
        if let Some(injection) = &spec.injection {
            subject.clear(injection.pcpu)?;
        }
        let exits = kvm::Counters::start(subject.pid(), &threads);
        let injector = spec.injection.clone().map(Injector::start).transpose()?;
        let on_before = self.neighbours_on();
        let subject = self.vms.first_mut().ok_or_else(not_booted)?;
        let cpu_s = process_cpu_s();
        let job = subject.run(&spec.job);
        let lab_cpu_s = process_cpu_s() - cpu_s;
        let on_after = self.neighbours_on();
        let injected = injector.map(Injector::stop).unwrap_or_default();
        let kvm = exits.stop();
        let observed = observer.map(Observer::finish);
        let job = job?;
        self.check_neighbours()?;
        if job.is_none() && observed.as_ref().is_some_and(Observed::is_dead) {
            return Err(Failure::new(
                FailureKind::GuestHang,
                "no vCPU has run since the job began: the guest lost an interrupt",
            ));
        }
        let mut output = RunOutput {
            neighbours: self.stop_neighbours(handles)?,
            neighbours_on_s: seconds_between(&on_before, &on_after),
            kvm,
            lab_cpu_s,
            ..Default::default()
        };
        if let (Some(job), Some(observed)) = (&job, observed) {
            let subject = self.vms.first_mut().ok_or_else(not_booted)?;
            let alignment = Alignment::between(before, truth::align(subject, shift, self.ask_by)?);
            let (summary, recording) = truth::describe(&observed, alignment, job, &subject.spec);
            let checks = !injected.is_empty() && observed.events.is_some();
            output.truth = Some(TruthSummary {
                injected: checks.then(|| observed.check(&injected, &subject.spec)),
                ..summary
            });
            output.recording = recording;
        }
        output.job = job;
        Ok(output)
    }

    fn start_neighbours(&mut self, spec: &RunSpec) -> Result<Vec<u64>, Failure> {
        let neighbours = self.vms.iter_mut().skip(1);
        let started: Result<Vec<u64>, Failure> =
            neighbours.zip(&spec.neighbours).map(|(vm, job)| vm.start_job(job)).collect();
        if !spec.neighbours.is_empty() {
            std::thread::sleep(LEAD);
        }
        started
    }

    /// Checks that all neighbours still run. A run without one of them is not the requested run.
    fn check_neighbours(&mut self) -> Result<(), Failure> {
        let gone = self.vms.iter_mut().skip(1).find_map(|vm| (!vm.is_alive()).then_some(&vm.spec));
        match gone {
            Some(spec) => {
                let detail = format!("{} ended while the subject ran", spec.name);
                Err(Failure::new(FailureKind::QemuDied, detail))
            }
            None => Ok(()),
        }
    }

    fn stop_neighbours(&mut self, handles: Vec<u64>) -> Result<Vec<Option<JobResult>>, Failure> {
        let neighbours = self.vms.iter_mut().skip(1);
        neighbours.zip(handles).map(|(vm, handle)| if_answered(vm.stop(handle))).collect()
    }

    /// Returns the nanoseconds that each neighbour's vCPUs have been on a pCPU so far.
    fn neighbours_on(&self) -> Vec<u64> {
        let neighbours = self.vms.iter().skip(1);
        neighbours.map(|vm| Totals::read(vm.pid(), &vm.vcpu_threads).on_ns).collect()
    }

    /// Kills the VMs after a failure instead of shutting them down, because they may not answer.
    fn or_kill<T>(&mut self, result: Result<T, Failure>) -> Result<T, Failure> {
        if result.is_err() {
            self.vms.clear();
            self.groups = None;
        }
        result
    }
}

impl Host for LocalHost {
    fn boot(&mut self, spec: &BootSpec) -> Result<Booted, Failure> {
        let booted = self.try_boot(spec);
        self.or_kill(booted)
    }

    fn run(&mut self, spec: &RunSpec) -> Result<RunOutput, Failure> {
        let output = self.try_run(spec);
        self.or_kill(output)
    }

    fn halt(&mut self) {
        for vm in self.vms.drain(..) {
            vm.shut_down();
        }
        self.groups = None;
    }
}

impl Drop for LocalHost {
    fn drop(&mut self) {
        self.vms.clear();
    }
}

fn not_booted() -> Failure {
    Failure::new(FailureKind::GuestHang, format!("no VM runs (at {} ns)", mono_ns()))
}

/// Returns the seconds between two readings in nanoseconds. A thread that has ended reads 0.
fn seconds_between(before_ns: &[u64], after_ns: &[u64]) -> Vec<f64> {
    let pairs = before_ns.iter().zip(after_ns);
    pairs.map(|(before, after)| after.saturating_sub(*before) as f64 / 1e9).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_that_died_was_on_for_no_time() {
        assert_eq!(seconds_between(&[5, 7_000_000_000], &[2_000_000_005, 0]), [2.0, 0.0]);
    }
}
