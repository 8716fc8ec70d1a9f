//! Runs the command of `unspin run` and `unspin record`.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::SigId;
use signal_hook::consts::SIGCHLD;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use signal_hook::low_level::{pipe, unregister};
use unspin_lab::interrupt;

/// Time between two looks at the command. A pipe reports its end and signals at once, so this is
/// the delay only if the pipe fails.
const PAUSE: Duration = Duration::from_secs(2);

/// A running command. It gets the signals that ask this process to end, and this process waits for
/// it.
pub struct Running {
    child: Child,
    signals: Signals,
    news: News,
}

/// A file that becomes readable when the command ends or a signal arrives.
struct News {
    stream: UnixStream,
    ids: Vec<SigId>,
}

impl News {
    fn listen() -> io::Result<News> {
        let (stream, writer) = UnixStream::pair()?;
        stream.set_nonblocking(true)?;
        let mut news = News { stream, ids: Vec::new() };
        for signal in interrupt::signals().into_iter().chain([SIGCHLD]) {
            news.ids.push(pipe::register(signal, writer.try_clone()?)?);
        }
        Ok(news)
    }

    /// Empties the pipe. The caller checks for the command's end and for signals next.
    fn forget(&mut self) {
        let mut buffer = [0; 64];
        while self.stream.read(&mut buffer).is_ok_and(|read| read > 0) {}
    }
}

impl Drop for News {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            unregister(id);
        }
    }
}

/// The signals that ask this process to end. This process catches them while the value exists.
pub struct Signals(SignalsInfo<WithRawSiginfo>);

/// The error of a command that could not be started.
#[derive(Debug)]
pub struct NotStarted {
    program: String,
    error: io::Error,
}

impl NotStarted {
    /// Prints the error on standard error, and returns a shell's exit status.
    pub fn report(&self) -> ExitCode {
        note!("unspin: cannot start {}: {}", self.program, self.error);
        ExitCode::from(self.status())
    }

    fn status(&self) -> u8 {
        if self.error.kind() == ErrorKind::NotFound { 127 } else { 126 }
    }
}

impl Running {
    /// Starts a command, given as its name and arguments, if there is one. With `apart`, its
    /// standard output goes to standard error, because standard output has JSON.
    pub fn start(command: &[String], apart: bool) -> Result<Option<Running>, NotStarted> {
        Running::start_in(None, command, apart)
    }

    /// Starts a command like [`Running::start`], in the cgroup of this folder if one is given.
    pub fn start_in(
        cgroup: Option<&Path>,
        command: &[String],
        apart: bool,
    ) -> Result<Option<Running>, NotStarted> {
        let Some((program, args)) = command.split_first() else { return Ok(None) };
        let spawn = || {
            let (signals, news) = (Signals::new()?, News::listen()?);
            let mut command = Command::new(program);
            command.args(args);
            if apart {
                command.stdout(io::stderr());
            }
            if let Some(folder) = cgroup {
                let procs = OpenOptions::new().write(true).open(folder.join("cgroup.procs"))?;
                // SAFETY: between fork and exec, the closure makes one write and allocates nothing.
                unsafe { command.pre_exec(move || (&procs).write_all(b"0")) };
            }
            Ok(Running { child: command.spawn()?, signals, news })
        };
        spawn().map(Some).map_err(|error| NotStarted { program: program.clone(), error })
    }

    /// Waits for the command and returns its exit code in the form of shells.
    pub fn wait(&mut self) -> io::Result<u8> {
        loop {
            if let Some(code) = self.step()? {
                return Ok(code);
            }
            interrupt::wait(&[self.news()], PAUSE);
        }
    }

    /// Returns a file that becomes readable when the caller has to call [`Running::step`].
    pub fn news(&self) -> BorrowedFd<'_> {
        self.news.stream.as_fd()
    }

    /// Passes on pending signals. Returns the command's exit code in the form of shells, if the
    /// command has ended.
    pub fn step(&mut self) -> io::Result<Option<u8>> {
        self.news.forget();
        if let Some(status) = self.child.try_wait()? {
            return Ok(Some(code(status)));
        }
        self.signals.pass_on(Some(&self.child));
        Ok(None)
    }
}

impl Signals {
    /// Catches the signals from now on.
    pub fn new() -> io::Result<Signals> {
        SignalsInfo::new(interrupt::signals()).map(Signals)
    }

    /// Passes pending signals on to `child`, which must not have been reaped. Returns whether a
    /// signal was pending.
    pub fn pass_on(&mut self, child: Option<&Child>) -> bool {
        let mut came = false;
        for info in self.0.pending() {
            came = true;
            // Signals from the kernel come from the terminal, which sends them to the command as
            // well.
            let sent_by_a_process = info.si_code <= 0;
            let signal = Signal::try_from(info.si_signo).ok().filter(|_| sent_by_a_process);
            if let (Some(child), Some(signal)) = (child, signal) {
                // The child has not been reaped, so its PID is still valid.
                let _ = kill(Pid::from_raw(child.id() as i32), signal);
            }
        }
        came
    }
}

fn code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map(|signal| 128 + signal);
    status.code().or_else(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Lock for tests that catch signals, because a signal reaches all tests of this process.
#[cfg(test)]
pub static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn start(script: &str) -> Running {
        Running::start(&["sh", "-c", script].map(str::to_owned), false).unwrap().unwrap()
    }

    fn codes_are_those_of_shells() {
        assert_eq!(start("exit 7").wait().unwrap(), 7);
        assert_eq!(start("kill -9 $$").wait().unwrap(), 137);
        let not_started = |name: &str| Running::start(&[name.to_owned()], false).err().unwrap();
        assert_eq!(not_started("/nowhere/nothing").status(), 127);
        assert_eq!(not_started("/").status(), 126);
        assert!(Running::start(&[], false).unwrap().is_none());
    }

    fn its_end_can_be_waited_for() {
        let mut running = start("exit 0");
        let mut news = [PollFd::new(running.news(), PollFlags::POLLIN)];
        let mut look = || poll(&mut news, PollTimeout::from(60_000_u16));
        // SIGCHLD may interrupt the first call.
        assert_eq!(look().or_else(|_| look()), Ok(1));
        assert_eq!(running.wait().unwrap(), 0);
    }

    fn a_signal_is_passed_on_and_the_command_waited_for() {
        let mut running = start("exec sleep 100");
        kill(Pid::this(), Signal::SIGTERM).unwrap();
        assert_eq!(running.wait().unwrap(), 143);

        let ready = std::env::temp_dir().join(format!("unspin-ready-{}", std::process::id()));
        let place = ready.display();
        let mut running = start(&format!(
            "trap 'kill $!; rm {place}; exit 5' INT; sleep 100 & : > {place}; wait"
        ));
        while !ready.exists() {
            assert_eq!(running.step().unwrap(), None);
        }
        kill(Pid::this(), Signal::SIGINT).unwrap();
        assert_eq!(running.wait().unwrap(), 5);
    }

    #[test]
    fn a_command_gets_signals_and_its_code_is_a_shells() {
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        codes_are_those_of_shells();
        its_end_can_be_waited_for();
        a_signal_is_passed_on_and_the_command_waited_for();
    }
}
