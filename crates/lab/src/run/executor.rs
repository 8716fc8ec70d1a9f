//! Carries out an experiment: the schedule's steps on real or simulated hosts. Each result is on
//! disk before the next run starts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use unspin_host::interrupt;
use unspin_model::{FailureKind, Label, Outcome, READY_TO_ON, RunRecord, Source};
use unspin_wire::{BootSpec, Failure, RunOutput, RunSpec};

use super::drive::{Bench, Turn, drive};
use super::identity::Plan;
use super::lanes::lanes;
use super::prepare::Prepared;
use super::record::{self, Place};
use super::schedule::Schedule;
use super::specs;
use super::{Event, Finish, LabError, Options, Progress, Selection, Store, Timings, folder, store};
use crate::experiment::{Experiment, PlannedBoot, PlannedRun};
use crate::host::{Router, VtOptions};
use crate::latency;
use crate::machine;
use crate::sensed;
use crate::workload::Workload;

/// Prepares an experiment on this machine. Returns its requirements, its selected runs and its
/// output folder.
///
/// # Errors
/// [`LabError::Interrupted`] after Ctrl-C. The output folder is then unchanged.
pub(super) fn plan(
    experiment: &Experiment,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<(Prepared, Plan, PathBuf), LabError> {
    let made = make_plan(experiment, options, progress);
    unless(interrupt::requested(), made)
}

/// Returns `Interrupted` if Ctrl-C was pressed. Ctrl-C also ends the programs that prepare a run,
/// so any other error may only be its consequence.
fn unless<T>(interrupted: bool, made: Result<T, LabError>) -> Result<T, LabError> {
    if interrupted { Err(LabError::Interrupted) } else { made }
}

fn make_plan(
    experiment: &Experiment,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<(Prepared, Plan, PathBuf), LabError> {
    if !options.fresh {
        // This check comes first, because preparing can take minutes.
        folder::meta_of(&options.out, &experiment.name)?;
    }
    let prepared = Prepared::new(experiment, options, progress)?;
    let mut plan = Plan::new(experiment, &prepared)?;
    plan.select(options.runs)?;
    let out = options.folder(experiment, &plan)?;
    if options.twice {
        store::refuse_results(&out, &experiment.name, &plan)?;
    }
    Ok((prepared, plan, out))
}

/// Carries out an experiment and returns the output folder. Resumes the runs that the folder
/// contains.
pub fn execute(
    experiment: &Experiment,
    options: &Options,
    progress: &mut (dyn Progress + Send),
) -> Result<(Finish, PathBuf), LabError> {
    let (prepared, plan, out) = plan(experiment, options, progress)?;
    let mut store = Store::open(&out, experiment, &plan, &options.commit)?;
    if let Some((bytes, torn)) = store.torn() {
        let runs = out.join("runs.jsonl");
        progress.event(Event::Note(&format!(
            "{}: an interrupted write had left an incomplete last line; its {bytes} bytes are in \
             {} now",
            runs.display(),
            torn.display()
        )));
    }
    for folder in options.taken_over_from() {
        store.reuse(folder, &plan)?;
    }
    // All images are written before the first run, so rebuilding a program meanwhile has no effect.
    progress.event(Event::Stage("writing the guests' images", None));
    let is_open = |boot: &&PlannedBoot| boot.runs.iter().any(|run| !store.is_done(run.run));
    for boot in plan.boots.iter().filter(|boot| boot.virtual_time).filter(is_open) {
        let written = prepared.write_cell_initramfs(experiment, boot);
        if interrupt::requested() {
            // The lanes see the interruption and end before their first run.
            break;
        }
        written?;
    }
    let runs = || plan.boots.iter().flat_map(|boot| &boot.runs);
    let done = runs().filter(|run| store.is_done(run.run)).count() as u64;
    progress.event(Event::Begin(done, runs().count() as u64));
    let machine = machine::describe(&options.commit);
    let lab = Lab {
        experiment,
        prepared,
        plan: &plan,
        lanes: lanes(options.jobs, experiment),
        twice: options.twice,
        desk: Mutex::new(Desk {
            store,
            timings: Timings::load(),
            progress,
            done,
            ended: BTreeSet::new(),
            under_way: BTreeMap::new(),
        }),
        host: format!("{}, Linux {}", machine.cpu, machine.kernel),
    };
    let started = Instant::now();
    let finish = lab.run_all();
    let mut desk = lab.desk();
    desk.timings.save();
    let complete = options.runs == Selection::All && matches!(finish, Ok(Finish::Complete));
    desk.store.end(started.elapsed().as_secs_f64(), complete)?;
    drop(desk);
    Ok((finish?, out))
}

struct Lab<'a> {
    experiment: &'a Experiment,
    prepared: Prepared,
    plan: &'a Plan,
    lanes: usize,
    twice: bool,
    desk: Mutex<Desk<'a>>,
    host: String,
}

/// State that the lanes share: the store of results and the receiver of progress.
struct Desk<'a> {
    store: Store,
    timings: Timings,
    progress: &'a mut (dyn Progress + Send),
    done: u64,
    /// Runs that this command has carried out, whether they succeeded or failed. Few failed runs
    /// are tried again.
    ended: BTreeSet<u64>,
    /// Description of each lane's current run in virtual time.
    under_way: BTreeMap<usize, String>,
}

impl<'a> Lab<'a> {
    /// Locks the shared state. After a panic on another lane, the store is as its last whole line
    /// left it.
    fn desk(&self) -> MutexGuard<'_, Desk<'a>> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out the runs in virtual time on all lanes, and then the runs in real time, one at a
    /// time.
    fn run_all(&self) -> Result<Finish, LabError> {
        let (simulated, real): (Vec<PlannedBoot>, Vec<PlannedBoot>) =
            self.plan.boots.iter().cloned().partition(|boot| boot.virtual_time);
        match self.run_lanes(&simulated, self.lanes)? {
            Finish::Complete => self.run_lanes(&real, 1),
            Finish::Interrupted => Ok(Finish::Interrupted),
        }
    }

    fn run_lanes(&self, boots: &[PlannedBoot], lanes: usize) -> Result<Finish, LabError> {
        let schedule = Mutex::new({
            let desk = self.desk();
            Schedule::new(boots, lanes, |run| desk.store.is_done(run))
        });
        let one_lane = |lane: usize| {
            let folder = self.prepared.scratch.path().join(lane.to_string());
            let reached = |virtual_ns| self.reached(lane, virtual_ns);
            let options = |qemu| VtOptions { qemu, twice: self.twice, reached: &reached };
            let mut hosts = Router::new(folder, self.prepared.vt_qemu.clone().map(options));
            drive(self, &schedule, lane, &mut hosts, &interrupt::requested)
        };
        // QEMU dies with the thread that started it, so each lane keeps one thread throughout.
        let finishes: Vec<Result<Finish, LabError>> = std::thread::scope(|scope| {
            let lanes: Vec<_> =
                (0..lanes).map(|lane| scope.spawn(move || one_lane(lane))).collect();
            let join = |lane: std::thread::ScopedJoinHandle<_>| {
                lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            lanes.into_iter().map(join).collect()
        });
        let finishes = finishes.into_iter().collect::<Result<Vec<_>, _>>()?;
        let interrupted = finishes.contains(&Finish::Interrupted);
        Ok(if interrupted { Finish::Interrupted } else { Finish::Complete })
    }

    fn left_s(&self, desk: &Desk) -> f64 {
        let is_over = |run| desk.store.is_done(run) || desk.ended.contains(&run);
        desk.timings.estimate_s(self.experiment, &self.plan.boots, self.lanes, is_over)
    }

    fn reached(&self, lane: usize, virtual_ns: u64) {
        let mut desk = self.desk();
        let left_s = self.left_s(&desk);
        let Desk { progress, done, under_way, .. } = &mut *desk;
        let what = under_way.get(&lane).map_or("", String::as_str);
        let virtual_s = virtual_ns as f64 / 1e9;
        progress.event(Event::Reached { what, virtual_s, done: *done, left_s });
    }

    fn place(&self, turn: &Turn) -> Place {
        let topology = &self.experiment.topologies[turn.boot.topology];
        let hello = turn.up.as_ref().and_then(|(_, booted)| booted.hellos.first());
        Place {
            block: turn.boot.block,
            boot: turn.up.as_ref().map_or(0, |(number, _)| *number),
            position: turn.attempt.position,
            attempt: turn.attempt.attempt,
            boot_s: turn.up.as_ref().map_or(0.0, |(_, booted)| booted.boot_s),
            spinlock: hello.map_or(String::new(), |hello| hello.spinlock.clone()),
            label: Label {
                source: Source::Lab,
                accel: Some(self.prepared.accel_of(topology)),
                nested: topology.nested.is_some() && !self.prepared.own_kvm,
                kernel: self.prepared.guests[turn.boot.kernel].kernel.release.clone(),
                host: self.host.clone(),
                cvm: topology
                    .simulated
                    .cvm
                    .filter(|_| turn.boot.virtual_time)
                    .map(|cvm| cvm.to_string()),
                prices: turn.boot.virtual_time.then(|| topology.simulated.prices_text()),
            },
            started: humantime::format_rfc3339_seconds(turn.began).to_string(),
        }
    }

    fn workload(&self, run: &PlannedRun) -> &Workload {
        &self.experiment.workloads[run.workload]
    }

    /// Writes a record under its run's names, and the reason of a failure to a log.
    fn append(&self, desk: &mut Desk, record: &mut RunRecord) -> Result<(), LabError> {
        if let Some(names) = self.plan.names.get(&record.run) {
            record.identity = Some(names.identity.clone());
            record.setting = Some(names.setting.clone());
        }
        if let Outcome::Failed { detail, .. } = &record.outcome {
            let identity = self.plan.identity_of(record.run)?;
            desk.store.keep_log(record.run, identity, record.attempt, detail)?;
        }
        desk.store.append(record)?;
        desk.ended.insert(record.run);
        desk.done += u64::from(record.observation().is_some());
        let left_s = self.left_s(desk);
        desk.progress.event(Event::Run(record, desk.done, left_s));
        Ok(())
    }

    fn keep_recording(
        &self,
        store: &Store,
        run: u64,
        output: &mut RunOutput,
    ) -> Result<(), LabError> {
        if !self.experiment.keep_recordings {
            return Ok(());
        }
        let identity = self.plan.identity_of(run)?;
        if let Some(session) = output.job.as_ref().and_then(|job| job.session.as_ref()) {
            store.keep_session(run, identity, session)?;
        }
        if let (Some(recording), Some(truth)) = (&output.recording, &mut output.truth) {
            truth.recording = Some(store.keep_recording(run, identity, recording)?);
        }
        Ok(())
    }
}

impl Bench for Lab<'_> {
    fn boot_spec(&self, boot: &PlannedBoot) -> Result<BootSpec, Failure> {
        specs::boot(self.experiment, &self.prepared, boot)
    }

    fn run_spec(&self, boot: &PlannedBoot, run: &PlannedRun) -> RunSpec {
        specs::run(self.experiment, &self.prepared, boot, run)
    }

    /// If each run has its own boot, the boot gets the run's number. The number then does not
    /// depend on the order in which lanes begin.
    fn booting(&self, lane: usize, boot: &PlannedBoot) -> u32 {
        let mut desk = self.desk();
        let in_words = |run: &PlannedRun| {
            format!("{}, seed {}", run.cell, specs::seed(self.experiment, boot.block))
        };
        if let Some(run) = boot.runs.first().filter(|_| boot.virtual_time) {
            desk.under_way.insert(lane, in_words(run));
        }
        desk.progress.event(Event::Boot(&self.experiment.topologies[boot.topology].name));
        match boot.runs.first() {
            Some(run) if boot.virtual_time => run.run as u32,
            _ => desk.store.next_boot(),
        }
    }

    fn ran(&self, turn: &Turn, mut output: RunOutput) -> Result<bool, LabError> {
        let run = &turn.attempt.run;
        let workload = self.workload(run);
        let topology = &self.experiment.topologies[turn.boot.topology];
        check_sensed(&mut output, workload);
        let mut desk = self.desk();
        if turn.attempt.position == 0 {
            desk.timings.note_boot(&turn.boot, topology, turn.boot_real_s);
        }
        desk.timings.note_run(&turn.boot, run, turn.run_real_s);
        let keeps = self.experiment.keep_latencies;
        let ready_to_on = output.recording.as_ref().filter(|_| keeps).map(latency::ready_to_on);
        self.keep_recording(&desk.store, run.run, &mut output)?;
        let limit_s = specs::limit_s(self.experiment, workload);
        let place = self.place(turn);
        let mut record = record::record(&place, run, workload, topology, limit_s, output);
        record.latencies.extend(ready_to_on.map(|lengths| (READY_TO_ON.to_owned(), lengths)));
        self.append(&mut desk, &mut record)?;
        Ok(!leaves_damage(&record.outcome))
    }

    fn failed(&self, turn: &Turn, failure: &Failure) -> Result<(), LabError> {
        let run = &turn.attempt.run;
        let mut record = record::failed(&self.place(turn), run, self.workload(run), failure);
        self.append(&mut self.desk(), &mut record)
    }
}

/// Returns whether this run may affect the measurement of another run in the same guest.
fn leaves_damage(outcome: &Outcome) -> bool {
    use FailureKind::{OutOfMemory, SchedulerFailed};
    matches!(
        outcome,
        Outcome::DidNotFinish { .. } | Outcome::Failed { kind: OutOfMemory | SchedulerFailed, .. }
    )
}

/// Compares the guest's session with the host's recording. If the session cannot be read, the
/// recorder failed.
fn check_sensed(output: &mut RunOutput, workload: &Workload) {
    let (Some(truth), Some(recording), Some(job)) =
        (&mut output.truth, &output.recording, &mut output.job)
    else {
        return;
    };
    let Some(session) = &job.session else { return };
    match sensed::check_session(session, recording, workload.waits.as_ref()) {
        Ok(check) => truth.sensed = Some(check),
        Err(error) => {
            job.scheduler_failed = true;
            job.stderr = error.to_string();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_whose_scheduler_or_memory_failed_boots_again() {
        let failed = |kind| leaves_damage(&Outcome::Failed { kind, detail: String::new() });
        assert!(failed(FailureKind::SchedulerFailed) && failed(FailureKind::OutOfMemory));
        assert!(!failed(FailureKind::WorkloadFailed) && !failed(FailureKind::NoResult));
        assert!(leaves_damage(&Outcome::DidNotFinish { limit_s: 1.0 }));
        assert!(!leaves_damage(&Outcome::Done { value: 1.0 }));
    }

    #[test]
    fn after_ctrl_c_neither_a_plan_nor_an_error_counts() {
        let failed = || LabError::Unnamed { detail: "x".into() };
        assert!(matches!(unless(true, Ok(1)), Err(LabError::Interrupted)));
        assert!(matches!(unless(true, Err::<u32, _>(failed())), Err(LabError::Interrupted)));
        assert!(matches!(unless(false, Ok(1)), Ok(1)));
        assert!(matches!(unless(false, Err::<u32, _>(failed())), Err(LabError::Unnamed { .. })));
    }
}
