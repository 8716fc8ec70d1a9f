//! The priority of the calling thread: before ordinary tasks, or as one.

use std::io;

use nix::libc;

/// Lets the thread run before ordinary tasks. If every vCPU spins, an ordinary task runs late.
pub(super) fn run_first() -> io::Result<()> {
    schedule(libc::SCHED_RR, 1)
}

/// Makes the thread an ordinary task, for work that is not urgent.
pub(super) fn run_as_others() -> io::Result<()> {
    schedule(libc::SCHED_OTHER, 0)
}

fn schedule(policy: i32, priority: i32) -> io::Result<()> {
    // SAFETY: a struct of integers, for which 0 is valid.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: the call is for the calling thread, and the pointer is to a live struct.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
