//! Ctrl-C. The first one ends the run under way and keeps what is finished;
//! a second one ends the process.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

static FLAG: LazyLock<Arc<AtomicBool>> = LazyLock::new(Default::default);

/// Makes SIGINT and SIGTERM set the flag, and end the process when it is set.
pub fn install() -> std::io::Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, FLAG.clone())?;
        signal_hook::flag::register(signal, FLAG.clone())?;
    }
    Ok(())
}

/// Whether the user wants us to stop.
pub fn requested() -> bool {
    FLAG.load(Ordering::Relaxed)
}
