//! Jobs in a guest: a command between two marks, and the agent that runs during it.

use std::time::Duration;

use unspin_host::truth::IdleTrace;
use unspin_wire::{Job, JobResult, Mark};

use crate::background::{Background, reap_orphans, run_setups};
use crate::{facts, mark, scheduler};

/// Runs a job to its end or its time limit.
pub fn run_job(job: &Job) -> JobResult {
    if let Err(error) = scheduler::switch_to(job.scheduler.as_ref()) {
        let stderr = format!("{error:#}");
        return JobResult { scheduler_failed: true, stderr, ..JobResult::default() };
    }
    let stats = scheduler::stats();
    let idle_trace = job.trace_idle.then(IdleTrace::start);
    let mut result = run_marked(job)
        .unwrap_or_else(|error| JobResult { stderr: format!("{error:#}"), ..JobResult::default() });
    let vcpus = facts::online_cpus() as usize;
    let idle = idle_trace.map(|trace| trace.and_then(|trace| trace.finish(vcpus)));
    result.idle = idle.and_then(|spans| {
        spans.inspect_err(|error| eprintln!("unspin init: when vCPUs idled: {error}")).ok()
    });
    result.stats = stats.and_then(|before| Some(Box::new([before, scheduler::stats()?])));
    result.agent_memory = scheduler::peak_memory();
    match job.scheduler.as_ref().map(scheduler::after_job) {
        Some(Ok(session)) => result.session = session,
        Some(Err(error)) => {
            result.scheduler_failed = true;
            result.stderr = format!("{error:#}");
        }
        None => {}
    }
    reap_orphans();
    result
}

/// Runs the setup commands, then the job between two marks.
fn run_marked(job: &Job) -> anyhow::Result<JobResult> {
    run_setups(job)?;
    let begin = mark::mark(Mark::Begin);
    let running = Background::launch(job)?;
    let limit = Duration::from_secs_f64(job.time_limit_s.clamp(0.0, 1e6));
    let mut end = None;
    let mut result = running.wait(limit, || end = mark::mark(Mark::End));
    result.marks = begin.into_iter().chain(end).collect();
    Ok(result)
}
