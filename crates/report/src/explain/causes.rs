//! Names of a cause in the views. Files, JSON and the table of places use [`Cause::name`].

use unspin_model::episode::Cause;

/// Returns the name in a verdict, after `because`.
pub(crate) const fn in_sentence(cause: Cause) -> &'static str {
    match cause {
        Cause::HolderOff => "lock holders were preempted",
        Cause::WaiterOff => "waiters in front were preempted",
        Cause::IpiOff => "vCPUs that had to answer an IPI were preempted",
        Cause::HolderPreempted => "the guest's own scheduler did not run lock holders",
        Cause::Plain => "locks were contended",
    }
}

/// Returns the name in the table of causes.
pub(crate) const fn in_table(cause: Cause) -> &'static str {
    match cause {
        Cause::HolderOff => "the holder was off",
        Cause::WaiterOff => "a waiter in front was off",
        Cause::IpiOff => "a vCPU that had to answer was off",
        Cause::HolderPreempted => "the guest did not run the holder",
        Cause::Plain => "plain contention",
    }
}
