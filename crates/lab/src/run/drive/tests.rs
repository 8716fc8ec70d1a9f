//! Tests of the driver and its schedule on a fake host.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use unspin_model::Cell;
use unspin_wire::{Fairness, JobResult, TruthMode};

use super::*;
use crate::experiment::Scheduler;

/// The host's next results: `Err` fails, `Ok(true)` finishes the run, `Ok(false)` does not.
type Plays = VecDeque<Result<bool, FailureKind>>;

/// A host that plays these results in order. After the last of them, every boot and run succeeds.
#[derive(Default)]
struct FakeHost {
    boots: Plays,
    runs: Plays,
    up: bool,
    log: Vec<&'static str>,
}

impl Host for FakeHost {
    fn boot(&mut self, _: &BootSpec) -> Result<Booted, Failure> {
        assert!(!self.up, "halted before the next boot");
        self.log.push("boot");
        match self.boots.pop_front().unwrap_or(Ok(true)) {
            Ok(_) => {
                self.up = true;
                Ok(Booted::default())
            }
            Err(kind) => Err(Failure::new(kind, "played")),
        }
    }

    fn run(&mut self, _: &RunSpec) -> Result<RunOutput, Failure> {
        assert!(self.up, "booted before a run");
        self.log.push("run");
        match self.runs.pop_front().unwrap_or(Ok(true)) {
            Ok(finished) => {
                let job = finished.then(JobResult::default);
                Ok(RunOutput { job, ..RunOutput::default() })
            }
            Err(kind) => {
                self.up = false;
                Err(Failure::new(kind, "played"))
            }
        }
    }

    fn halt(&mut self) {
        self.log.push("halt");
        self.up = false;
    }
}

/// A bench that records every event. Its disk can fill up.
#[derive(Default)]
struct FakeBench {
    noted: Mutex<Vec<String>>,
    disk_lines: Option<usize>,
}

impl FakeBench {
    fn note(&self, line: String) -> Result<(), LabError> {
        let mut noted = self.noted.lock().unwrap();
        if self.disk_lines.is_some_and(|lines| noted.len() >= lines) {
            let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(LabError::Write { path: "runs.jsonl".into(), source });
        }
        noted.push(line);
        Ok(())
    }
}

impl Bench for FakeBench {
    fn boot_spec(&self, _: &PlannedBoot) -> Result<BootSpec, Failure> {
        let fairness = Fairness::PerThread;
        Ok(BootSpec { vms: Vec::new(), fairness, l1: None, virtual_host: None })
    }

    fn run_spec(&self, _: &PlannedBoot, _: &PlannedRun) -> RunSpec {
        RunSpec {
            job: Default::default(),
            neighbours: Vec::new(),
            truth: TruthMode::Off,
            injection: None,
        }
    }

    fn booting(&self, _: usize, boot: &PlannedBoot) -> u32 {
        boot.block
    }

    fn ran(&self, turn: &Turn, output: RunOutput) -> Result<bool, LabError> {
        let since = turn.began.elapsed().expect("a time in the past");
        assert!(since.as_secs_f64() >= turn.run_real_s, "it began before it took its time");
        let how = if output.job.is_some() { "done" } else { "unfinished" };
        self.note(format!("{} {how} {}", turn.attempt.run.run, turn.attempt.attempt))?;
        Ok(output.job.is_some())
    }

    fn failed(&self, turn: &Turn, failure: &Failure) -> Result<(), LabError> {
        let Attempt { run, attempt, .. } = &turn.attempt;
        self.note(format!("{} {:?} {attempt}", run.run, failure.kind))
    }
}

/// Returns two boots of three runs each.
fn boots(virtual_time: bool) -> Vec<PlannedBoot> {
    let run = |run| PlannedRun {
        run,
        cell: Cell {
            topology: "2:1".into(),
            kernel: "lab".into(),
            boot_params: String::new(),
            scheduler: "stock".into(),
            workload: "w".into(),
        },
        scheduler: Scheduler::Stock,
        workload: 0,
    };
    let boot = |block: u32| PlannedBoot {
        block,
        virtual_time,
        topology: 0,
        kernel: 0,
        boot_params: 0,
        runs: (0..3).map(|n| run(u64::from(block) * 3 + n)).collect(),
    };
    vec![boot(0), boot(1)]
}

struct Scene {
    host: FakeHost,
    bench: FakeBench,
    done: Vec<u64>,
    virtual_time: bool,
    stop_after: Option<usize>,
}

impl Scene {
    fn new(boots: Vec<Result<bool, FailureKind>>, runs: Vec<Result<bool, FailureKind>>) -> Scene {
        let host = FakeHost { boots: boots.into(), runs: runs.into(), ..FakeHost::default() };
        let bench = FakeBench::default();
        Scene { host, bench, done: Vec::new(), virtual_time: false, stop_after: None }
    }

    fn play(&mut self) -> (Result<Finish, LabError>, Vec<String>) {
        let plan = boots(self.virtual_time);
        let schedule = Mutex::new(Schedule::new(&plan, 1, |run| self.done.contains(&run)));
        let stop_after = self.stop_after;
        let noted = &self.bench.noted;
        let interrupted = || stop_after.is_some_and(|runs| noted.lock().unwrap().len() >= runs);
        let finish = drive(&self.bench, &schedule, 0, &mut self.host, &interrupted);
        assert!(!self.host.up, "no VM is left behind");
        (finish, self.bench.noted.lock().unwrap().clone())
    }
}

#[test]
fn every_run_is_done_in_the_order_of_the_plan() {
    let mut scene = Scene::new(vec![], vec![]);
    let (finish, noted) = scene.play();
    assert_eq!(finish.unwrap(), Finish::Complete);
    let expected = ["0 done 1", "1 done 1", "2 done 1", "3 done 1", "4 done 1", "5 done 1"];
    assert_eq!(noted, expected);
    let boot = ["boot", "run", "run", "run", "halt"];
    assert_eq!(scene.host.log, [boot, boot].concat());
}

#[test]
fn a_resumed_experiment_does_only_what_is_open() {
    let mut scene = Scene::new(vec![], vec![]);
    scene.done = vec![0, 1, 2, 4];
    let (_, noted) = scene.play();
    assert_eq!(noted, ["3 done 1", "5 done 1"]);
    assert_eq!(scene.host.log, ["boot", "run", "run", "halt"]);
}

#[test]
fn a_full_disk_stops_at_once_and_keeps_what_was_written() {
    let mut scene = Scene::new(vec![], vec![]);
    scene.bench.disk_lines = Some(2);
    let (finish, noted) = scene.play();
    assert!(matches!(finish, Err(LabError::Write { .. })));
    assert_eq!(noted, ["0 done 1", "1 done 1"]);
}

#[test]
fn a_run_beyond_its_time_limit_is_a_result_and_costs_the_boot() {
    let mut scene = Scene::new(vec![], vec![Ok(false)]);
    let (_, noted) = scene.play();
    assert_eq!(noted[..3], ["0 unfinished 1", "1 done 1", "2 done 1"]);
    assert_eq!(scene.host.log[..6], ["boot", "run", "halt", "boot", "run", "run"]);
}

#[test]
fn each_kind_of_failure_is_retried_as_often_as_that_helps() {
    let cases = [
        (FailureKind::Int3Oops, 5),
        (FailureKind::GuestHang, 2),
        (FailureKind::BootTimeout, 2),
        (FailureKind::GuestPanic, 1),
        (FailureKind::WorkloadFailed, 1),
        (FailureKind::Unavailable, 1),
    ];
    for (kind, attempts) in cases {
        let (_, noted) = Scene::new(vec![], vec![Err(kind); 9]).play();
        let of_run_0 = noted.iter().filter(|line| line.starts_with("0 ")).count();
        assert_eq!(of_run_0, attempts, "{kind:?}: {noted:?}");
    }
}

#[test]
fn a_retry_that_helps_leaves_both_records() {
    let (_, noted) = Scene::new(vec![], vec![Ok(true), Err(FailureKind::GuestHang)]).play();
    assert_eq!(noted[..4], ["0 done 1", "1 GuestHang 1", "1 done 2", "2 done 1"]);
}

#[test]
fn what_does_not_boot_for_one_run_does_not_boot_for_the_others() {
    let timeout = Err(FailureKind::BootTimeout);
    let (_, noted) = Scene::new(vec![timeout, timeout], vec![]).play();
    let expected = ["0 BootTimeout 1", "0 BootTimeout 2", "1 BootTimeout 1", "2 BootTimeout 1"];
    assert_eq!(noted[..4], expected);
    assert_eq!(noted[4], "3 done 1", "the next boot is tried");
}

#[test]
fn virtual_time_is_never_retried() {
    let mut scene = Scene::new(vec![], vec![Err(FailureKind::Int3Oops)]);
    scene.virtual_time = true;
    let (_, noted) = scene.play();
    assert_eq!(noted[..2], ["0 Int3Oops 1", "1 done 1"]);
}

#[test]
fn an_interrupted_run_leaves_no_record() {
    let mut scene = Scene::new(vec![], vec![Ok(true), Err(FailureKind::Interrupted)]);
    let (_, noted) = scene.play();
    assert_eq!(noted, ["0 done 1"]);
}

/// A host whose QEMU is killed at its boot, or at its run if `boots` is set. The signal has then
/// reached this process, too.
struct KilledHost<'a> {
    boots: bool,
    killed: &'a AtomicBool,
}

impl KilledHost<'_> {
    fn die<T>(&self) -> Result<T, Failure> {
        self.killed.store(true, Ordering::Relaxed);
        Err(Failure::new(FailureKind::QemuDied, "SIGTERM"))
    }
}

impl Host for KilledHost<'_> {
    fn boot(&mut self, _: &BootSpec) -> Result<Booted, Failure> {
        if self.boots { Ok(Booted::default()) } else { self.die() }
    }

    fn run(&mut self, _: &RunSpec) -> Result<RunOutput, Failure> {
        self.die()
    }

    fn halt(&mut self) {}
}

#[test]
fn a_qemu_that_is_killed_along_with_us_leaves_no_record() {
    for it_boots in [false, true] {
        let (plan, bench, killed) = (boots(true), FakeBench::default(), AtomicBool::new(false));
        let schedule = Mutex::new(Schedule::new(&plan, 1, |_| false));
        let mut host = KilledHost { boots: it_boots, killed: &killed };
        let interrupted = || killed.load(Ordering::Relaxed);
        let finish = drive(&bench, &schedule, 0, &mut host, &interrupted).unwrap();
        assert_eq!(finish, Finish::Interrupted);
        assert!(bench.noted.into_inner().unwrap().is_empty(), "it boots: {it_boots}");
    }
}

#[test]
fn ctrl_c_between_runs_ends_the_boot() {
    let mut scene = Scene::new(vec![], vec![]);
    scene.stop_after = Some(2);
    let (finish, noted) = scene.play();
    assert_eq!((finish.unwrap(), noted.len()), (Finish::Interrupted, 2));
    assert_eq!(scene.host.log, ["boot", "run", "run", "halt"]);
}

#[test]
fn lanes_share_the_runs_of_a_schedule() {
    let plan = boots(true);
    let bench = FakeBench::default();
    let schedule = Mutex::new(Schedule::new(&plan, 2, |_| false));
    let logs = RefCell::new(Vec::new());
    std::thread::scope(|scope| {
        let lane = |lane| {
            let (bench, schedule) = (&bench, &schedule);
            scope.spawn(move || {
                let mut host = FakeHost::default();
                drive(bench, schedule, lane, &mut host, &|| false).unwrap();
                host.log
            })
        };
        let lanes = [lane(0), lane(1)];
        logs.borrow_mut().extend(lanes.into_iter().map(|lane| lane.join().unwrap()));
    });
    let mut noted = bench.noted.into_inner().unwrap();
    noted.sort();
    assert_eq!(noted.len(), 6);
    noted.dedup();
    assert_eq!(noted.len(), 6, "each run once");
    let runs = logs.into_inner().iter().flatten().filter(|what| **what == "run").count();
    assert_eq!(runs, 6);
}
