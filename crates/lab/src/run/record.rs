//! Turns the output of a host into a run's record.

use std::collections::BTreeMap;

use unspin_model::{
    AGENT_MEMORY, Better, CO_RUNNER_SHARE, CRITICAL_SHARE, FailureKind, Label, Metric, NAMED_SHARE,
    NeighbourResult, Outcome, PAUSE_EXITS, PREEMPTIONS, REFLECTIONS, RunRecord, STORM_EXITS,
    YIELDED_SHARE,
};
use unspin_wire::{Critical, Failure, JobResult, RunOutput, Vnae, option_name};

use crate::experiment::{PlannedRun, Topology};
use crate::workload::{Reading, Workload};

/// The position of a run in its experiment and its boot.
#[derive(Debug, Clone)]
pub struct Place {
    /// Number of the block.
    pub block: u32,
    /// Number of the boot.
    pub boot: u32,
    /// Position of the run in the boot.
    pub position: u32,
    /// Number of the attempt.
    pub attempt: u32,
    /// Duration of the boot in seconds.
    pub boot_s: f64,
    /// Spinlock of the guest's kernel.
    pub spinlock: String,
    /// Provenance of the result.
    pub label: Label,
    /// Start of the run.
    pub started: String,
}

/// Returns the record of a run that the host carried out.
pub fn record(
    place: &Place,
    run: &PlannedRun,
    workload: &Workload,
    topology: &Topology,
    limit_s: f64,
    output: RunOutput,
) -> RunRecord {
    let unfinished = || Err(Outcome::DidNotFinish { limit_s });
    let read = output.job.as_ref().map_or_else(unfinished, |job| judge(job, workload, limit_s));
    let (outcome, reading) = match read {
        Ok(reading) => (Outcome::Done { value: reading.value }, reading),
        Err(outcome) => (outcome, Reading::default()),
    };
    let Reading { mut co_metrics, latencies, .. } = reading;
    if let Some(bytes) = output.job.as_ref().and_then(|job| job.agent_memory) {
        co_metrics.insert(AGENT_MEMORY.to_owned(), bytes as f64 / 1e6);
    }
    if let Some([before, after]) = output.job.as_ref().and_then(|job| job.stats.as_deref()) {
        co_metrics.extend(after.since(before));
    }
    if topology.in_virtual_time() {
        co_metrics.extend(host_figures(topology, &output));
    }
    let elapsed_s = output.job.as_ref().map_or(limit_s, JobResult::elapsed_s);
    RunRecord {
        outcome,
        co_metrics,
        latencies,
        neighbours: neighbours(topology, &output),
        truth: output.truth,
        digest: output.digest,
        kvm: output.kvm,
        elapsed_s,
        lab_cpu_share: if elapsed_s > 0.0 { output.lab_cpu_s / elapsed_s } else { 0.0 },
        ..failed(place, run, workload, &Failure::new(FailureKind::NoResult, ""))
    }
}

/// Returns the record of a run that failed.
pub fn failed(
    place: &Place,
    run: &PlannedRun,
    workload: &Workload,
    failure: &Failure,
) -> RunRecord {
    RunRecord {
        run: run.run,
        block: place.block,
        boot: place.boot,
        position: place.position,
        attempt: place.attempt,
        cell: run.cell.clone(),
        metric: workload.metric.clone(),
        outcome: Outcome::Failed { kind: failure.kind, detail: failure.detail.clone() },
        co_metrics: BTreeMap::new(),
        latencies: BTreeMap::new(),
        neighbours: Vec::new(),
        truth: None,
        kvm: BTreeMap::new(),
        elapsed_s: 0.0,
        boot_s: place.boot_s,
        lab_cpu_share: 0.0,
        spinlock: place.spinlock.clone(),
        digest: None,
        started: place.started.clone(),
        label: place.label.clone(),
        identity: None,
        setting: None,
    }
}

/// Returns the figures that a job measured or, if there are none, the outcome that explains it.
fn judge(job: &JobResult, workload: &Workload, limit_s: f64) -> Result<Reading, Outcome> {
    let fail = |kind, detail: String| Err(Outcome::Failed { kind, detail });
    if job.scheduler_failed {
        return fail(FailureKind::SchedulerFailed, job.stderr.clone());
    }
    if job.timed_out {
        return Err(Outcome::DidNotFinish { limit_s });
    }
    if job.out_of_memory {
        return fail(FailureKind::OutOfMemory, "the guest's out-of-memory killer struck".into());
    }
    if job.exit_code != Some(0) {
        let how = match (job.exit_code, job.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "it did not start".to_owned(),
        };
        return fail(FailureKind::WorkloadFailed, format!("{how}\n{}{}", job.stdout, job.stderr));
    }
    workload.read(&job.stdout, job.elapsed_s()).or_else(|error| {
        fail(FailureKind::NoResult, format!("{error}\n{}{}", job.stdout, job.stderr))
    })
}

fn neighbours(topology: &Topology, output: &RunOutput) -> Vec<NeighbourResult> {
    let read = |workload: &Workload, job: &Option<JobResult>| {
        let job = job.as_ref()?;
        workload.read(&job.stdout, job.elapsed_s()).ok().map(|reading| reading.value)
    };
    if topology.in_virtual_time() {
        return models(topology, output);
    }
    let pairs = topology.neighbours.iter().zip(&output.neighbours).enumerate();
    pairs
        .map(|(index, (neighbour, job))| NeighbourResult {
            vm: neighbour.name.clone(),
            workload: neighbour.workload.name.clone(),
            metric: neighbour.workload.metric.clone(),
            value: read(&neighbour.workload, job),
            on_s: output.neighbours_on_s.get(index).copied(),
        })
        .collect()
}

/// Returns the figures of the simulated host: pause-loop exits, and the neighbours' share of pCPU
/// time.
fn host_figures(topology: &Topology, output: &RunOutput) -> BTreeMap<String, f64> {
    let count = |counter: &str| output.kvm.get(counter).map_or(0.0, |count| *count as f64);
    let mut figures = BTreeMap::from([
        (PAUSE_EXITS.to_owned(), count("exit:pause")),
        (STORM_EXITS.to_owned(), count("storm-exits")),
    ]);
    if topology.simulated.help.critical != Critical::Off {
        let [all, critical] = ["preemptions", "critical-preemptions"].map(count);
        figures.insert(PREEMPTIONS.to_owned(), all);
        figures.insert(CRITICAL_SHARE.to_owned(), 100.0 * critical / all.max(1.0));
    }
    if topology.simulated.help.vnae != Vnae::Off {
        let all = count("reflections");
        let of_all = |n: f64| 100.0 * n / all.max(1.0);
        let yielded = output
            .kvm
            .iter()
            .filter(|(name, _)| name.starts_with("answer:") && name.ends_with(":yielded"));
        let yielded: u64 = yielded.map(|(_, n)| n).sum();
        figures.insert(REFLECTIONS.to_owned(), all);
        figures.insert(NAMED_SHARE.to_owned(), of_all(count("answers-named")));
        figures.insert(YIELDED_SHARE.to_owned(), of_all(yielded as f64));
    }
    let vcpus: u32 = topology.simulated.neighbours.iter().map(|neighbour| neighbour.vcpus).sum();
    let window_s = output.truth.as_ref().map_or(0.0, |truth| truth.window_s);
    let had_s: f64 = output.neighbours_on_s.iter().sum();
    let could_have_s = f64::from(vcpus) * window_s;
    if could_have_s > 0.0 {
        figures.insert(CO_RUNNER_SHARE.to_owned(), 100.0 * had_s / could_have_s);
    }
    figures
}

/// Returns the results of modelled neighbours: only the time for which they were on a pCPU.
fn models(topology: &Topology, output: &RunOutput) -> Vec<NeighbourResult> {
    let models = topology.simulated.neighbours.iter().enumerate();
    models
        .map(|(index, neighbour)| {
            let on_s = output.neighbours_on_s.get(index).copied();
            NeighbourResult {
                vm: neighbour.name.clone(),
                workload: format!("model {}", option_name(&neighbour.model)),
                metric: Metric { name: "on".into(), unit: "s".into(), better: Better::Higher },
                value: on_s,
                on_s,
            }
        })
        .collect()
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
