//! Boots and runs, in the plan's order, until every run has a result.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use unspin_model::{FailureKind, Label, Outcome, RunRecord, Source};

use super::identity::Plan;
use super::prepare::Prepared;
use super::record::{self, Place};
use super::specs;
use super::{Event, Finish, LabError, Options, Progress, Store, Timings};
use crate::experiment::{Experiment, PlannedBoot, PlannedRun, Topology};
use crate::host::{Host, LocalHost, NestedHost};
use crate::interrupt;
use crate::machine;
use crate::truth;
use crate::wire::{Failure, Hello, HostReply, HostRequest, RunOutput, VmSpec};
use crate::workload::Workload;

/// Carries out an experiment and returns the output folder; resumes what is there.
pub fn execute(
    experiment: &Experiment,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<(Finish, PathBuf), LabError> {
    let prepared = Prepared::new(experiment, options, progress)?;
    let plan = Plan::new(experiment, &prepared)?;
    let out = options.folder(experiment, &plan)?;
    let mut store = Store::open(&out, experiment, &plan, &options.commit)?;
    for folder in &options.reuse {
        store.reuse(folder, &plan)?;
    }
    let (done, planned) = (store.done(), plan.names.len() as u64);
    progress.event(Event::Begin(done, planned));
    let mut executor = Executor {
        experiment,
        local: LocalHost::new(prepared.scratch.path().to_owned()),
        prepared,
        plan: &plan,
        nested: None,
        store,
        timings: Timings::load(),
        progress,
        done,
        machine: machine::describe(&options.commit),
    };
    let started = Instant::now();
    let finish = executor.run_all();
    executor.stop_hosts();
    executor.timings.save();
    let complete = matches!(finish, Ok(Finish::Complete));
    executor.store.end(started.elapsed().as_secs_f64(), complete)?;
    Ok((finish?, out))
}

struct Executor<'a> {
    experiment: &'a Experiment,
    prepared: Prepared,
    plan: &'a Plan,
    local: LocalHost,
    nested: Option<L1>,
    store: Store,
    timings: Timings,
    progress: &'a mut dyn Progress,
    done: u64,
    machine: unspin_model::summary::Machine,
}

/// An L1 that is up.
struct L1 {
    block: u32,
    spec: VmSpec,
    host: NestedHost,
}

/// A boot that is up.
struct Up {
    number: u32,
    boot_s: f64,
    hello: Hello,
}

/// What to do after a run.
enum Next {
    SameBoot,
    NewBoot,
}

impl Executor<'_> {
    fn run_all(&mut self) -> Result<Finish, LabError> {
        for boot in &self.plan.boots {
            let open = boot.runs.iter().filter(|run| !self.store.is_done(run.run));
            let mut open: VecDeque<(PlannedRun, u32)> = open.map(|run| (run.clone(), 1)).collect();
            while !open.is_empty() {
                if interrupt::requested() {
                    return Ok(Finish::Interrupted);
                }
                self.one_boot(boot, &mut open)?;
            }
        }
        Ok(Finish::Complete)
    }

    /// Boots and does as many of the open runs as this boot lasts for.
    fn one_boot(
        &mut self,
        boot: &PlannedBoot,
        open: &mut VecDeque<(PlannedRun, u32)>,
    ) -> Result<(), LabError> {
        let number = self.store.next_boot();
        self.progress.event(Event::Boot(&self.experiment.topologies[boot.topology].name));
        let started = Instant::now();
        let up = match self.boot(boot, number) {
            Ok(up) => up,
            Err(failure) => return self.give_up_or_retry(boot, None, 0, open, &failure),
        };
        let nested = self.experiment.topologies[boot.topology].nested.is_some();
        self.timings.note_boot(nested, started.elapsed().as_secs_f64());
        for position in 0.. {
            let Some((run, attempt)) = open.front().cloned() else { break };
            if interrupt::requested() {
                break;
            }
            match self.one_run(boot, &up, position, &run, attempt)? {
                Ok(next) => {
                    open.pop_front();
                    if matches!(next, Next::NewBoot) {
                        break;
                    }
                }
                Err(failure) => {
                    return self.give_up_or_retry(boot, Some(&up), position, open, &failure);
                }
            }
        }
        self.halt(boot);
        Ok(())
    }

    fn one_run(
        &mut self,
        boot: &PlannedBoot,
        up: &Up,
        position: u32,
        run: &PlannedRun,
        attempt: u32,
    ) -> Result<Result<Next, Failure>, LabError> {
        let topology = &self.experiment.topologies[boot.topology];
        let workload = &self.experiment.workloads[run.workload];
        let place = self.place(boot, Some(up), position, attempt);
        let spec = specs::run(self.experiment, &self.prepared, boot, run);
        let limit_s = spec.job.time_limit_s;
        let started = Instant::now();
        let mut output = match self.ask(boot, HostRequest::Run(Box::new(spec))) {
            Ok(HostReply::Ran(output)) => *output,
            Ok(other) => return Ok(Err(unexpected(&other))),
            Err(failure) => return Ok(Err(failure)),
        };
        if output.job.is_none() && interrupt::requested() {
            return Ok(Ok(Next::NewBoot));
        }
        self.timings.note_run(&workload.name, started.elapsed().as_secs_f64());
        check_sensed(&mut output, workload);
        self.keep_recording(run.run, &mut output)?;
        let record = record::record(&place, run, workload, topology, limit_s, output);
        let record = self.finish(record)?;
        let fresh = matches!(record.outcome, Outcome::DidNotFinish { .. });
        Ok(Ok(if fresh { Next::NewBoot } else { Next::SameBoot }))
    }

    fn keep_recording(&mut self, run: u64, output: &mut RunOutput) -> Result<(), LabError> {
        let Some(recording) = output.recording.take().filter(|_| self.experiment.keep_recordings)
        else {
            return Ok(());
        };
        let identity = self.plan.identity_of(run)?;
        let name = self.store.keep_recording(run, identity, &recording)?;
        if let Some(session) = output.job.as_ref().and_then(|job| job.session.as_ref()) {
            self.store.keep_session(run, identity, session)?;
        }
        if let Some(truth) = &mut output.truth {
            truth.recording = Some(name);
        }
        Ok(())
    }

    /// Notes a failed attempt at the first open run; drops the run when another
    /// attempt would not help.
    fn give_up_or_retry(
        &mut self,
        boot: &PlannedBoot,
        up: Option<&Up>,
        position: u32,
        open: &mut VecDeque<(PlannedRun, u32)>,
        failure: &Failure,
    ) -> Result<(), LabError> {
        self.stop_hosts();
        if interrupt::requested() {
            return Ok(());
        }
        let Some((run, attempt)) = open.pop_front() else { return Ok(()) };
        self.note_failure(boot, up, position, &run, attempt, failure)?;
        if attempt < attempts(failure.kind) {
            open.push_front((run, attempt + 1));
        } else if up.is_none() {
            // What does not boot for one run does not boot for the others.
            for (run, _) in std::mem::take(open) {
                self.note_failure(boot, up, position, &run, 1, failure)?;
            }
        }
        Ok(())
    }

    fn note_failure(
        &mut self,
        boot: &PlannedBoot,
        up: Option<&Up>,
        position: u32,
        run: &PlannedRun,
        attempt: u32,
        failure: &Failure,
    ) -> Result<(), LabError> {
        let place = self.place(boot, up, position, attempt);
        let workload = &self.experiment.workloads[run.workload];
        let record = record::failed(&place, run, workload, failure);
        let identity = self.plan.identity_of(run.run)?;
        self.store.keep_log(run.run, identity, attempt, &failure.detail)?;
        self.finish(record).map(drop)
    }

    /// Files the record under the run's names.
    fn finish(&mut self, mut record: RunRecord) -> Result<RunRecord, LabError> {
        if let Some(names) = self.plan.names.get(&record.run) {
            record.identity = Some(names.identity.clone());
            record.setting = Some(names.setting.clone());
        }
        self.store.append(&record)?;
        self.done += u64::from(record.observation().is_some());
        let store = &self.store;
        let boots = &self.plan.boots;
        let left_s = self.timings.estimate_s(self.experiment, boots, |run| store.is_done(run));
        self.progress.event(Event::Run(&record, self.done, left_s));
        Ok(record)
    }

    fn place(&self, boot: &PlannedBoot, up: Option<&Up>, position: u32, attempt: u32) -> Place {
        let guest = &self.prepared.guests[boot.kernel];
        let topology = &self.experiment.topologies[boot.topology];
        Place {
            block: boot.block,
            boot: up.map_or(0, |up| up.number),
            position,
            attempt,
            boot_s: up.map_or(0.0, |up| up.boot_s),
            spinlock: up.map_or(String::new(), |up| up.hello.spinlock.clone()),
            label: Label {
                source: Source::Lab,
                accel: Some(self.prepared.accel),
                nested: topology.nested.is_some() && !self.prepared.own_kvm,
                kernel: guest.kernel.release.clone(),
                host: format!("{}, Linux {}", self.machine.cpu, self.machine.kernel),
            },
            started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        }
    }

    fn boot(&mut self, boot: &PlannedBoot, number: u32) -> Result<Up, Failure> {
        let topology = &self.experiment.topologies[boot.topology];
        let in_l1 = topology.nested.is_some() && !self.prepared.own_kvm;
        if in_l1 {
            self.start_l1(boot, topology)?;
        }
        let request = HostRequest::Boot {
            vms: specs::vms(self.experiment, &self.prepared, boot, in_l1)?,
            fairness: topology.fairness,
        };
        match self.ask(boot, request)? {
            HostReply::Booted { hellos, boot_s } => {
                let hello = hellos.into_iter().next().ok_or_else(|| {
                    Failure::new(FailureKind::BootTimeout, "no VM in the topology")
                })?;
                Ok(Up { number, boot_s, hello })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// An L1 serves the boots of one block that want the same one, as long as
    /// nothing fails on it.
    fn start_l1(&mut self, boot: &PlannedBoot, topology: &Topology) -> Result<(), Failure> {
        let spec = specs::l1(self.experiment, &self.prepared, topology)?;
        if self.nested.as_ref().is_some_and(|l1| l1.block == boot.block && l1.spec == spec) {
            return Ok(());
        }
        if let Some(old) = self.nested.take() {
            old.host.shut_down();
        }
        let host = NestedHost::start(&spec, &self.prepared.scratch.path().join("l1"))?;
        self.nested = Some(L1 { block: boot.block, spec, host });
        Ok(())
    }

    /// Asks the host that the boot's topology runs on.
    fn ask(&mut self, boot: &PlannedBoot, request: HostRequest) -> Result<HostReply, Failure> {
        let nested = self.experiment.topologies[boot.topology].nested.is_some();
        match &mut self.nested {
            Some(l1) if nested => l1.host.handle(request),
            _ => self.local.handle(request),
        }
    }

    fn halt(&mut self, boot: &PlannedBoot) {
        if self.ask(boot, HostRequest::Halt).is_err() {
            self.stop_hosts();
        }
    }

    fn stop_hosts(&mut self) {
        let _ = self.local.handle(HostRequest::Halt);
        if let Some(l1) = self.nested.take() {
            l1.host.shut_down();
        }
    }
}

/// Holds what the guest found out against what its host saw. A session that cannot be
/// read is a recorder that failed.
fn check_sensed(output: &mut RunOutput, workload: &Workload) {
    let (Some(truth), Some(recording), Some(job)) =
        (&mut output.truth, &output.recording, &mut output.job)
    else {
        return;
    };
    let Some(session) = &job.session else { return };
    match truth::check_session(session, recording, workload.waits.as_ref()) {
        Ok(check) => truth.sensed = Some(check),
        Err(error) => {
            job.scheduler_failed = true;
            job.stderr = error.to_string();
        }
    }
}

/// How often a run is tried in all, by how it failed: more than once only
/// where another attempt is known to help.
fn attempts(kind: FailureKind) -> u32 {
    match kind {
        FailureKind::Int3Oops => 5,
        FailureKind::BootTimeout | FailureKind::GuestHang => 2,
        _ => 1,
    }
}

fn unexpected(reply: &HostReply) -> Failure {
    Failure::new(FailureKind::GuestHang, format!("unexpected reply {reply:?}"))
}
