//! A process that lifts the limit if this one is killed.
//!
//! It has the reading end of a pipe, and nobody writes to it: it ends where this process does,
//! however that ends.

use std::env;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{self, SigHandler, Signal};

use super::error::CpusetError;

/// How long the other's end may take, in the worst collapse.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// This program, also where an upgrade has replaced its file.
const PROGRAM: &str = "/proc/self/exe";
/// The name that people know it by.
const NAME: &str = "unspin";
/// What the guard is started with.
const ARGS: [&str; 3] = ["run", "--restore", "--when-gone"];

/// The guard, which ends when this is dropped.
pub(super) struct Guard {
    child: Child,
}

impl Guard {
    /// Starts it. Without it, which is said, the limit stays after a SIGKILL until the next
    /// `unspin run`.
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

    /// Ends it: there is nothing that it might have to lift.
    fn dismiss(mut self) {
        let _ = self.child.kill();
    }
}

/// The guard with what it guards. Where that has not begun, this process has lifted what it could,
/// and the guard goes at once: it would wait for another `unspin run` that has the cgroups.
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

/// What starts it.
fn command() -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg0(env::args_os().next().unwrap_or_else(|| NAME.into())).args(ARGS);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // Signals of the terminal are for this process.
    command.process_group(0);
    command
}

/// In the guard: until the process that it guards has ended. systemd asks all processes of a unit
/// to end once the first one was killed, and this one is there for just that.
pub(super) fn wait() {
    // The kernel has named it after the link.
    let _ = fs::write("/proc/self/comm", NAME);
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        // SAFETY: no handler runs.
        let _ = unsafe { signal::signal(signal, SigHandler::SigIgn) };
    }
    let _ = io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink());
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// The path of a file that was replaced ends with ` (deleted)`.
    #[test]
    fn the_guard_is_started_by_the_link_to_this_program() {
        let command = command();
        assert_eq!(command.get_program(), "/proc/self/exe");
        assert!(command.get_args().eq(ARGS));
    }

    #[test]
    fn an_error_does_not_wait_for_the_guard() {
        let begin = Instant::now();
        // As a guard does that waits for the journal, it goes on after the end of its input.
        let child = Command::new("sleep").arg("60").stdin(Stdio::piped()).spawn().unwrap();
        let error = CpusetError::Read("/cg".into(), io::Error::other("what"));
        let kept = keep::<()>(Some(Guard { child }), Err(error));
        assert!(matches!(kept, Err(CpusetError::Read(..))));
        assert!(begin.elapsed() < PATIENCE / 2);
    }
}
