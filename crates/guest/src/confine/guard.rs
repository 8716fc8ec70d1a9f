//! A process that lifts the limit if this one is killed.
//!
//! It has the reading end of a pipe, and nobody writes to it: it ends where this process does,
//! however that ends.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{self, SigHandler, Signal};

/// How long the other's end may take, in the worst collapse.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
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
        let start = || {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(ARGS).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            // Signals of the terminal are for this process.
            command.process_group(0).spawn()
        };
        let guard = start();
        if let Err(error) = &guard {
            note!(
                "unspin: start the guard process: {error}; if this process is killed, lift the \
                 limit by `unspin run --restore`"
            );
        }
        Some(Guard { child: guard.ok()? })
    }

    /// Ends it: there is nothing that it might have to lift.
    pub(super) fn dismiss(mut self) {
        let _ = self.child.kill();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// In the guard: until the process that it guards has ended. systemd asks all processes of a unit
/// to end once the first one was killed, and this one is there for just that.
pub(super) fn wait() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        // SAFETY: no handler runs.
        let _ = unsafe { signal::signal(signal, SigHandler::SigIgn) };
    }
    let _ = io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink());
}
