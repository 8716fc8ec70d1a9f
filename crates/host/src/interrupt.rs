//! Ctrl-C. The first one ends the run under way and keeps what is finished;
//! a second one ends the process.

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
/// Can be read once a signal has come.
static CAME: OnceLock<UnixStream> = OnceLock::new();

/// The signals that ask this process to end, but for a SIGHUP that it was started to ignore, as
/// nohup does.
pub fn signals() -> Vec<i32> {
    let mut signals = vec![SIGINT, SIGTERM, SIGQUIT];
    if !is_ignored(SIGHUP) {
        signals.push(SIGHUP);
    }
    signals
}

fn is_ignored(signal: i32) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only, and writes one struct, for which 0 is valid.
    let now = unsafe {
        libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr());
        now.assume_init()
    };
    now.sa_sigaction == libc::SIG_IGN
}

/// Makes [`signals`] set the flag, and end the process when it is set.
pub fn install() -> std::io::Result<()> {
    for signal in signals() {
        signal_hook::flag::register_conditional_shutdown(signal, 130, FLAG.clone())?;
    }
    install_flag()
}

/// Makes [`signals`] set the flag, however many come: for who has a terminal to restore.
pub fn install_flag() -> std::io::Result<()> {
    let (reader, writer) = UnixStream::pair()?;
    // After the first time nobody writes to the new one.
    let _ = CAME.set(reader);
    for signal in signals() {
        signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        signal_hook::flag::register(signal, FLAG.clone())?;
    }
    Ok(())
}

/// Sleeps for so long, or until one of [`signals`] comes, or one of these files can be read.
pub fn wait(files: &[BorrowedFd<'_>], time: Duration) {
    let came = CAME.get().map(AsFd::as_fd);
    let files = files.iter().copied().chain(came);
    let mut all: Vec<_> = files.map(|file| PollFd::new(file, PollFlags::POLLIN)).collect();
    // A signal ends it, too, and so may an error: who waits looks again.
    let _ = poll(&mut all, PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX));
}

/// Whether the user wants us to stop.
pub fn requested() -> bool {
    FLAG.load(Ordering::Relaxed)
}
