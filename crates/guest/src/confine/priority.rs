//! A thread that runs before ordinary tasks.

use std::io;

use nix::libc;

/// Where every vCPU spins, a turn among the others comes late.
pub(super) fn run_first() -> io::Result<()> {
    // SAFETY: a struct of integers, for which 0 is valid.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = 1;
    // SAFETY: of the calling thread, with a pointer to a live struct.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
