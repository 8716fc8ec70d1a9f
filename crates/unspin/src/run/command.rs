//! The command that a scheduler is run around.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

/// A command under way. It gets the signals that ask this process to end, and is waited
/// for.
pub struct Running {
    child: Child,
    signals: SignalsInfo<WithRawSiginfo>,
}

impl Running {
    /// Starts it, in a cgroup if one is given.
    pub fn start(program: &str, args: &[String], cgroup: Option<&Path>) -> io::Result<Running> {
        let signals = SignalsInfo::new([SIGINT, SIGTERM])?;
        let mut command = Command::new(program);
        command.args(args);
        if let Some(folder) = cgroup {
            let procs = OpenOptions::new().write(true).open(folder.join("cgroup.procs"))?;
            // SAFETY: between fork and exec it makes one write, and allocates nothing.
            unsafe { command.pre_exec(move || (&procs).write_all(b"0")) };
        }
        Ok(Running { child: command.spawn()?, signals })
    }

    /// Passes on what has come; the exit code as shells have it, if it has ended.
    pub fn step(&mut self) -> io::Result<Option<u8>> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(Some(code(status)));
        }
        for info in self.signals.pending() {
            // What the kernel sends comes from the terminal, which gives it to the
            // command, too.
            let sent_by_a_process = info.si_code <= 0;
            if let (true, Ok(signal)) = (sent_by_a_process, Signal::try_from(info.si_signo)) {
                // It has not been waited for, so the number is still its own.
                let _ = kill(Pid::from_raw(self.child.id() as i32), signal);
            }
        }
        Ok(None)
    }
}

/// What shells return for a command that could not be started.
pub fn not_started(error: &io::Error) -> u8 {
    if error.kind() == ErrorKind::NotFound { 127 } else { 126 }
}

fn code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map(|signal| 128 + signal);
    status.code().or_else(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn start(script: &str) -> Running {
        Running::start("sh", &["-c".to_owned(), script.to_owned()], None).unwrap()
    }

    fn end(running: &mut Running) -> u8 {
        loop {
            if let Some(code) = running.step().unwrap() {
                return code;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn codes_are_those_of_shells() {
        assert_eq!(end(&mut start("exit 7")), 7);
        assert_eq!(end(&mut start("kill -9 $$")), 137);
        let missing = Running::start("/nowhere/nothing", &[], None).err().unwrap();
        assert_eq!(not_started(&missing), 127);
        let folder = Running::start("/", &[], None).err().unwrap();
        assert_eq!(not_started(&folder), 126);
    }

    fn a_signal_is_passed_on_and_the_command_waited_for() {
        let mut running = start("exec sleep 100");
        kill(Pid::this(), Signal::SIGTERM).unwrap();
        assert_eq!(end(&mut running), 143);

        let ready = std::env::temp_dir().join(format!("unspin-ready-{}", std::process::id()));
        let place = ready.display();
        let mut running = start(&format!(
            "trap 'kill $!; rm {place}; exit 5' INT; sleep 100 & : > {place}; wait"
        ));
        while !ready.exists() {
            assert_eq!(running.step().unwrap(), None);
        }
        kill(Pid::this(), Signal::SIGINT).unwrap();
        assert_eq!(end(&mut running), 5);
    }

    /// One after the other, because a signal is for all that this process runs.
    #[test]
    fn a_command_gets_signals_and_its_code_is_a_shells() {
        codes_are_those_of_shells();
        a_signal_is_passed_on_and_the_command_waited_for();
    }
}
