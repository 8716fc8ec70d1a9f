//! The agent that runs during a job: a command that loads a sched_ext scheduler and keeps it until
//! it is stopped, or a command that records a session. A scheduler that the next run needs as well
//! keeps running.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use unspin_model::scheduler::Stats;
use unspin_wire::{Agent, Job, JobResult};

use crate::background::Background;

const STATE: &str = "/sys/kernel/sched_ext/state";
const LOADS_WITHIN: Duration = Duration::from_secs(60);
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
const LEAVES_WITHIN: Duration = Duration::from_secs(10);
const SESSION_LIMIT: u64 = 64 << 20;

struct Running {
    agent: Agent,
    job: Background,
}

static CURRENT: Mutex<Option<Running>> = Mutex::new(None);

/// Makes `wanted` run; with `None`, only the kernel's own scheduler runs, without an agent.
pub fn switch_to(wanted: Option<&Agent>) -> anyhow::Result<()> {
    let mut current = CURRENT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if current.as_ref().map(|running| &running.agent) == wanted
        && wanted.is_none_or(|agent| agent.session.is_none() && is_ready(agent))
    {
        return Ok(());
    }
    if let Some(old) = current.take() {
        let is_scheduler = old.agent.is_scheduler();
        match stop(old) {
            Err(error) if is_scheduler => return Err(error),
            // The agent belonged to another run, which has its result.
            Err(error) => eprintln!("unspin init: {error:#}"),
            Ok(()) => {}
        }
    }
    let Some(agent) = wanted else { return Ok(()) };
    if let Some(session) = &agent.session {
        let _ = fs::remove_file(session);
    }
    let job = Background::start(&Job { argv: agent.argv.clone(), ..Job::default() })?;
    if wait_for(|| is_ready(agent), LOADS_WITHIN).is_err() {
        bail!("`{}` {}", agent.argv.join(" "), complaint("is not ready", &job.stop()));
    }
    *current = Some(Running { agent: agent.clone(), job });
    Ok(())
}

/// Returns the session that an agent recorded during a job, if it records one. Returns an error if
/// the agent ended before the job.
pub fn after_job(agent: &Agent) -> anyhow::Result<Option<Vec<u8>>> {
    let mut current = CURRENT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(session) = &agent.session else {
        if is_ready(agent) {
            return Ok(None);
        }
        // Taking the agent makes its end fail only this run, not the next one.
        let left = current.take().map(|old| complaint("went away", &old.job.stop()));
        let left = left.unwrap_or_else(|| "went away".to_owned());
        bail!("`{}` {left}", agent.argv.join(" "));
    };
    let running = current.take().context("the agent does not run")?;
    stop(running)?;
    let size = fs::metadata(session).with_context(|| session.clone())?.len();
    if size > SESSION_LIMIT {
        bail!("{session} has {size} bytes, {SESSION_LIMIT} at most are fetched");
    }
    Ok(Some(fs::read(session).with_context(|| session.clone())?))
}

/// Returns the agent's peak memory so far in bytes.
pub fn peak_memory() -> Option<u64> {
    let current = CURRENT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    current.as_ref()?.job.peak_memory()
}

/// Returns the guest scheduler's figures so far, if it serves them.
pub fn stats() -> Option<Stats> {
    let current = CURRENT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let path = current.as_ref()?.agent.stats.as_ref()?;
    let asked = ask(path).with_context(|| path.display().to_string());
    asked.inspect_err(|error| eprintln!("unspin init: the scheduler's figures: {error:#}")).ok()
}

fn ask(path: &Path) -> anyhow::Result<Stats> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
    stream.write_all(b"stats\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

fn stop(old: Running) -> anyhow::Result<()> {
    let result = old.job.stop();
    if old.agent.is_scheduler() {
        return wait_for(|| !is_enabled(), LEAVES_WITHIN)
            .with_context(|| complaint("did not leave", &result));
    }
    if result.exit_code != Some(0) {
        bail!("`{}` {}", old.agent.argv.join(" "), complaint("failed", &result));
    }
    Ok(())
}

fn is_ready(agent: &Agent) -> bool {
    match (&agent.session, &agent.listens) {
        (Some(session), _) => fs::metadata(session).is_ok_and(|about| about.len() > 0),
        (None, Some(address)) => TcpStream::connect_timeout(address, ANSWERS_WITHIN).is_ok(),
        (None, None) => is_enabled() && agent.stats.as_deref().is_none_or(Path::exists),
    }
}

/// Returns whether a sched_ext scheduler is loaded.
fn is_enabled() -> bool {
    fs::read_to_string(STATE).is_ok_and(|state| state.trim() == "enabled")
}

fn wait_for(holds: impl Fn() -> bool, limit: Duration) -> anyhow::Result<()> {
    let started = Instant::now();
    while !holds() {
        if started.elapsed() > limit {
            bail!("not within {} s", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn complaint(what: &str, result: &JobResult) -> String {
    let code = result.exit_code.map_or_else(|| "a signal".to_owned(), |c| format!("exit {c}"));
    format!("{what} ({code}): {}{}", result.stderr, result.stdout)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::background::tests::launch;

    #[test]
    fn an_agent_that_went_away_fails_its_own_run_and_no_other() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let argv = vec!["watch".to_owned()];
        let agent = Agent { argv, listens: Some(closed), ..Agent::default() };
        let dies = || {
            let (job, _) = launch("exit 3").unwrap();
            *CURRENT.lock().unwrap() = Some(Running { agent: agent.clone(), job });
        };
        dies();
        let error = after_job(&agent).unwrap_err().to_string();
        assert!(error.starts_with("`watch` went away ("), "{error}");
        assert!(CURRENT.lock().unwrap().is_none());
        // The agent dies between two runs.
        dies();
        switch_to(None).unwrap();
    }
}
