//! Ctrl-C. The first one ends the current run and keeps finished results; a second one ends the
//! process.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

static FLAG: LazyLock<Arc<AtomicBool>> = LazyLock::new(Default::default);
/// A stream that becomes readable when a signal arrives.
static CAME: OnceLock<UnixStream> = OnceLock::new();

/// Returns the signals that ask this process to end. SIGHUP is left out if the process was started
/// to ignore it, as nohup does.
pub fn signals() -> Vec<i32> {
    let mut signals = vec![SIGINT, SIGTERM, SIGQUIT];
    if !is_ignored(SIGHUP) {
        signals.push(SIGHUP);
    }
    signals
}

fn is_ignored(signal: i32) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the call only asks, and writes one struct, for which 0 is valid.
    let now = unsafe {
        libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr());
        now.assume_init()
    };
    now.sa_sigaction == libc::SIG_IGN
}

/// Makes each of [`signals`] set the flag, or end the process if the flag is set already.
pub fn install() -> std::io::Result<()> {
    for signal in signals() {
        signal_hook::flag::register_conditional_shutdown(signal, 130, FLAG.clone())?;
    }
    install_flag()
}

/// Makes [`signals`] set the flag without ever ending the process, for a caller that has a terminal
/// to restore.
pub fn install_flag() -> std::io::Result<()> {
    let (reader, writer) = UnixStream::pair()?;
    // If `CAME` is set already, no thread reads from the new stream.
    let _ = CAME.set(reader);
    for signal in signals() {
        signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        signal_hook::flag::register(signal, FLAG.clone())?;
    }
    Ok(())
}

/// Sleeps for `time`, or until one of [`signals`] arrives, or one of `files` becomes readable.
pub fn wait(files: &[BorrowedFd<'_>], time: Duration) {
    let came = CAME.get().map(AsFd::as_fd);
    let files = files.iter().copied().chain(came);
    let mut all: Vec<_> = files.map(|file| PollFd::new(file, PollFlags::POLLIN)).collect();
    // A signal, or an error, also ends the wait. The caller checks again in any case.
    let _ = poll(&mut all, PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX));
}

/// Returns whether the user wants this process to stop.
pub fn requested() -> bool {
    FLAG.load(Ordering::Relaxed)
}
