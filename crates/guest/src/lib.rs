//! The guest's side.
//!
//! [`machine`] gathers what a machine is and works out what that means; [`doctor`]
//! reports it, with what follows for spinning and for curing it. [`sense`] finds the off
//! intervals of this guest's vCPUs while it runs; [`record`] keeps them in a file,
//! [`watch`] for some seconds or as sums. [`account`] counts spins exactly. [`run`] acts: it is
//! the guest scheduler. [`confine`] acts, too, and leaves the kernel's scheduler in place.
//! [`ab`] compares the guest's work with and without the scheduler.

/// A line on standard error. Where nobody reads it any more, as after `2>&1 | head`, it is lost,
/// and nothing else is.
macro_rules! note {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

pub mod ab;
pub mod account;
pub mod confine;
pub mod doctor;
mod lateness;
pub mod machine;
pub mod record;
pub mod run;
pub mod sense;
mod spinning;
mod steal;
pub mod topology;
pub mod watch;
