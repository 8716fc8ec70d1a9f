//! The guest scheduler of a run: a command that loads a sched_ext scheduler
//! and keeps it until it is stopped. One that the next run wants as well stays.

use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::job::Background;
use crate::wire::{Job, JobResult};

const STATE: &str = "/sys/kernel/sched_ext/state";
const LOADS_WITHIN: Duration = Duration::from_secs(60);
const LEAVES_WITHIN: Duration = Duration::from_secs(10);

struct Running {
    argv: Vec<String>,
    job: Background,
}

static CURRENT: Mutex<Option<Running>> = Mutex::new(None);

/// Makes `wanted` the guest scheduler; `None` is the kernel's own.
pub fn switch_to(wanted: Option<&[String]>) -> anyhow::Result<()> {
    let mut current = CURRENT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if current.as_ref().map(|r| r.argv.as_slice()) == wanted && (wanted.is_none() || is_enabled()) {
        return Ok(());
    }
    if let Some(old) = current.take() {
        let result = old.job.stop();
        wait_for(false, LEAVES_WITHIN).with_context(|| complaint("did not leave", &result))?;
    }
    let Some(argv) = wanted else { return Ok(()) };
    let job = Background::start(&Job { argv: argv.to_vec(), ..Job::default() })?;
    if wait_for(true, LOADS_WITHIN).is_err() {
        bail!("guest scheduler `{}` {}", argv.join(" "), complaint("did not load", &job.stop()));
    }
    *current = Some(Running { argv: argv.to_vec(), job });
    Ok(())
}

/// True while a sched_ext scheduler is loaded.
pub fn is_enabled() -> bool {
    fs::read_to_string(STATE).is_ok_and(|state| state.trim() == "enabled")
}

fn wait_for(enabled: bool, limit: Duration) -> anyhow::Result<()> {
    let started = Instant::now();
    while is_enabled() != enabled {
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
