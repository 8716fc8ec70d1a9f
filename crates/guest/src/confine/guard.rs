//! A process that lifts the limit if this one is killed.
//!
//! The guard holds the reading end of a pipe to which nobody writes. The pipe closes when this
//! process ends, however it ends, and then the guard acts.

use std::env;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{self, SigHandler, Signal};

use super::error::CpusetError;

/// How long the process may take to end, in the worst collapse.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// This program, even if an upgrade has replaced its file.
const PROGRAM: &str = "/proc/self/exe";
/// The program's name, if it was started without one.
const NAME: &str = "unspin";
/// The name of the guard's process. `pkill -9 unspin` must not find it.
const COMM: &str = "limit-guard";
/// The arguments that start the guard.
const ARGS: [&str; 3] = ["run", "--restore", "--when-gone"];

/// The guard. Dropping this ends it.
pub(super) struct Guard {
    child: Child,
}

impl Guard {
    /// Starts the guard. If this fails, prints a note: after a SIGKILL, the limit then stays until
    /// the next `unspin run`.
    pub(super) fn start() -> Option<Guard> {
        let guard = command().spawn();
        if let Err(error) = &guard {
            note!(
                "unspin: start the guard process: {error}; if this process is killed, lift the \
                 limit by `unspin run --restore`"
            );
        }
        Some(Guard { child: guard.ok()? })
    }

    /// Kills the guard, because it has nothing to lift. Otherwise it would wait for another `unspin
    /// run` that has taken the cgroups over meanwhile.
    pub(super) fn dismiss(mut self) {
        let _ = self.child.kill();
    }
}

/// Returns the guard with the value of `begun`. On an error this process has already lifted its
/// limits as far as possible, so the guard is dismissed.
pub(super) fn keep<T>(
    guard: Option<Guard>,
    begun: Result<T, CpusetError>,
) -> Result<(Option<Guard>, T), CpusetError> {
    match begun {
        Ok(begun) => Ok((guard, begun)),
        Err(error) => {
            guard.into_iter().for_each(Guard::dismiss);
            Err(error)
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Returns the command that starts the guard.
fn command() -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg0(env::args_os().next().unwrap_or_else(|| NAME.into())).args(ARGS);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // Signals of the terminal are for this process only.
    command.process_group(0);
    command
}

/// Waits, in the guard, until the guarded process has ended. Ignores signals: systemd asks all
/// processes of a unit to end when the first one is killed, and that is when the guard is needed.
pub(super) fn wait() {
    // Replace the name "exe", which the kernel has taken from the link.
    let _ = fs::write("/proc/self/comm", COMM);
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        // SAFETY: no handler runs.
        let _ = unsafe { signal::signal(signal, SigHandler::SigIgn) };
    }
    let _ = io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink());
}

#[cfg(test)]
impl Guard {
    /// Returns a guard that waits for a minute, like one that waits for the journal.
    pub(super) fn that_waits() -> Guard {
        Guard { child: Command::new("sleep").arg("60").stdin(Stdio::piped()).spawn().unwrap() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// The link also works after an upgrade; the path of a replaced file ends with ` (deleted)`.
    #[test]
    fn the_guard_is_started_by_the_link_to_this_program() {
        let command = command();
        assert_eq!(command.get_program(), "/proc/self/exe");
        assert!(command.get_args().eq(ARGS));
    }

    #[test]
    fn an_error_does_not_wait_for_the_guard() {
        let begin = Instant::now();
        let error = CpusetError::Read("/cg".into(), io::Error::other("what"));
        let kept = keep::<()>(Some(Guard::that_waits()), Err(error));
        assert!(matches!(kept, Err(CpusetError::Read(..))));
        assert!(begin.elapsed() < PATIENCE / 2);
    }
}
