use std::path::Path;

use unspin_model::{Accel, Cell, Source, TruthSummary};

use super::*;
use crate::experiment::{Experiment, Scheduler, plan};

const WORKLOAD: &str = r#"
name = "w"
title = "w"
stresses = "nothing"
programs = []
command = ["true"]
time_limit_s = 10
metric = { name = "m", unit = "s", better = "lower" }
read = { regex = 'result (\S+)' }

[[co_metric]]
name = "load_s"
read = { regex = 'load (\S+)' }
"#;

const EXPERIMENT: &str = r#"
name = "x"
title = "x"
about = "x"
repeats = 1
kernels = ["k"]
schedulers = ["stock"]
workloads = ["stress-ng-rename"]
[[topology]]
name = "t"
vcpus = 2
pcpus = 1
[[topology.neighbour]]
vcpus = 1
workload = "greedy"
"#;

fn place() -> Place {
    Place {
        block: 3,
        boot: 2,
        position: 1,
        attempt: 2,
        boot_s: 5.0,
        spinlock: "native qspinlock".into(),
        label: Label {
            source: Source::Lab,
            accel: Some(Accel::Tcg),
            nested: false,
            kernel: "6.12".into(),
            host: "a host".into(),
            prices: None,
            cvm: None,
        },
        started: "2026-01-01T00:00:00Z".into(),
    }
}

fn recorded(output: RunOutput) -> RunRecord {
    recorded_in(EXPERIMENT, output)
}

fn recorded_in(experiment: &str, output: RunOutput) -> RunRecord {
    let experiment = Experiment::parse(Path::new("x.toml"), experiment).unwrap();
    let boots = plan(&experiment);
    let run: &PlannedRun = &boots[0].runs[0];
    assert_eq!(run.scheduler, Scheduler::Stock);
    let workload = Workload::parse(Path::new("w.toml"), WORKLOAD).unwrap();
    record(&place(), run, &workload, &experiment.topologies[0], 10.0, output)
}

fn of_job(job: JobResult) -> RunRecord {
    recorded(RunOutput { job: Some(job), lab_cpu_s: 0.1, ..RunOutput::default() })
}

/// Returns a successful job of two seconds.
fn job() -> JobResult {
    JobResult {
        exit_code: Some(0),
        start_ns: 1_000_000_000,
        end_ns: 3_000_000_000,
        stdout: "result 1.5\nload 0.25\n".into(),
        ..JobResult::default()
    }
}

fn kind(record: &RunRecord) -> Option<FailureKind> {
    match &record.outcome {
        Outcome::Failed { kind, .. } => Some(*kind),
        _ => None,
    }
}

#[test]
fn a_result_is_recorded_with_its_place_and_co_metrics() {
    let record = of_job(JobResult { agent_memory: Some(2_500_000), ..job() });
    assert_eq!(record.outcome, Outcome::Done { value: 1.5 });
    assert_eq!((record.co_metrics["load_s"], record.co_metrics[AGENT_MEMORY]), (0.25, 2.5));
    assert_eq!((record.elapsed_s, record.lab_cpu_share), (2.0, 0.05));
    let of_place = (record.block, record.boot, record.position, record.attempt, record.boot_s);
    assert_eq!(of_place, (3, 2, 1, 2, 5.0));
    assert!(record.identity.is_none() && record.setting.is_none(), "the executor names runs");
    let cell = Cell {
        topology: "t".into(),
        kernel: "k".into(),
        boot_params: String::new(),
        scheduler: "stock".into(),
        workload: "stress-ng-rename".into(),
    };
    assert_eq!(record.cell, cell);
}

#[test]
fn a_simulated_host_says_what_it_saw() {
    let experiment = EXPERIMENT
        .replace("repeats = 1", "repeats = 1\naccel = \"vt\"")
        .replace("vcpus = 1\nworkload = \"greedy\"", "vcpus = 2\nmodel = \"greedy\"");
    let record = recorded_in(
        &experiment,
        RunOutput {
            job: Some(job()),
            kvm: [("exit:pause".to_owned(), 300), ("storm-exits".to_owned(), 101)].into(),
            neighbours_on_s: vec![3.0],
            truth: Some(TruthSummary { window_s: 2.0, ..TruthSummary::default() }),
            ..RunOutput::default()
        },
    );
    assert_eq!((record.co_metrics[PAUSE_EXITS], record.co_metrics[STORM_EXITS]), (300.0, 101.0));
    assert_eq!(record.co_metrics[CO_RUNNER_SHARE], 75.0, "3 of 4 vCPU seconds");
    assert!(!of_job(job()).co_metrics.contains_key(PAUSE_EXITS), "only a simulated host counts");
}

#[test]
fn a_host_that_hears_of_critical_sections_says_how_many_it_preempted() {
    let experiment = EXPERIMENT
        .replace("repeats = 1", "repeats = 1\naccel = \"vt\"\nvt = { critical = \"count\" }")
        .replace("vcpus = 1\nworkload = \"greedy\"", "vcpus = 2\nmodel = \"greedy\"");
    let kvm = [("preemptions".to_owned(), 40), ("critical-preemptions".to_owned(), 7)].into();
    let record =
        recorded_in(&experiment, RunOutput { job: Some(job()), kvm, ..RunOutput::default() });
    assert_eq!(record.co_metrics[PREEMPTIONS], 40.0);
    assert_eq!(record.co_metrics[CRITICAL_SHARE], 17.5);
    assert!(!of_job(job()).co_metrics.contains_key(PREEMPTIONS), "a host that does not ask");
}

#[test]
fn a_host_that_reflects_pause_loops_says_what_the_answers_were_worth() {
    let vt = "vt = { cvm = \"sev-es-emulated\", regime = \"ple\", vnae = \"both\" }";
    let experiment = EXPERIMENT
        .replace("repeats = 1", &format!("repeats = 1\naccel = \"vt\"\n{vt}"))
        .replace("vcpus = 1\nworkload = \"greedy\"", "vcpus = 2\nmodel = \"greedy\"");
    let kvm = [
        ("reflections", 40),
        ("answers-named", 30),
        ("answer:spinlock:yielded", 8),
        ("answer:queue:yielded", 2),
        ("answer:queue:running", 20),
    ];
    let kvm = kvm.map(|(name, n)| (name.to_owned(), n)).into();
    let record =
        recorded_in(&experiment, RunOutput { job: Some(job()), kvm, ..RunOutput::default() });
    let figures = [REFLECTIONS, NAMED_SHARE, YIELDED_SHARE].map(|name| record.co_metrics[name]);
    assert_eq!(figures, [40.0, 75.0, 25.0]);
    assert!(!of_job(job()).co_metrics.contains_key(REFLECTIONS), "a host that reflects none");
}

#[test]
fn a_time_limit_and_a_silent_guest_are_results() {
    let limit = Outcome::DidNotFinish { limit_s: 10.0 };
    assert_eq!(of_job(JobResult { timed_out: true, exit_code: None, ..job() }).outcome, limit);
    let silent = recorded(RunOutput::default());
    assert_eq!((silent.outcome, silent.elapsed_s), (limit, 10.0));
}

#[test]
fn failures_have_their_kind() {
    for (job, expected) in [
        (JobResult { scheduler_failed: true, ..job() }, FailureKind::SchedulerFailed),
        (JobResult { out_of_memory: true, ..job() }, FailureKind::OutOfMemory),
        (JobResult { exit_code: Some(3), ..job() }, FailureKind::WorkloadFailed),
        (JobResult { exit_code: None, signal: Some(9), ..job() }, FailureKind::WorkloadFailed),
        (JobResult { stdout: "nothing".into(), ..job() }, FailureKind::NoResult),
        // If the scheduler failed, every other symptom may be its consequence.
        (
            JobResult { scheduler_failed: true, timed_out: true, ..job() },
            FailureKind::SchedulerFailed,
        ),
    ] {
        let record = of_job(job);
        assert_eq!(kind(&record), Some(expected));
        assert_eq!(record.observation(), None);
    }
}

#[test]
fn neighbours_have_a_value_only_where_it_can_be_read() {
    let of = |neighbours, neighbours_on_s| {
        let output =
            RunOutput { job: Some(job()), neighbours, neighbours_on_s, ..RunOutput::default() };
        recorded(output).neighbours
    };
    let read = of(vec![Some(JobResult { stdout: "progress".into(), ..job() })], vec![1.5]);
    assert_eq!((read[0].vm.as_str(), read[0].on_s), ("neighbour1", Some(1.5)));
    let silent = of(vec![None], Vec::new());
    assert_eq!((silent[0].value, silent[0].on_s), (None, None));
}
