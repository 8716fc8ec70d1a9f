//! Ctrl-C. The first one ends the run under way and keeps what is finished;
//! a second one ends the process.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

static FLAG: LazyLock<Arc<AtomicBool>> = LazyLock::new(Default::default);

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
        signal_hook::flag::register(signal, FLAG.clone())?;
    }
    Ok(())
}

/// Whether the user wants us to stop.
pub fn requested() -> bool {
    FLAG.load(Ordering::Relaxed)
}
