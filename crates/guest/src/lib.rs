//! The guest side of unspin.
//!
//! [`machine`] reads the facts about a machine and derives its properties. [`doctor`] reports them,
//! with their consequences for spinning and its cure. [`sense`] finds the off intervals of this
//! guest's vCPUs while it runs; [`record`] keeps them in a file, and [`watch`] for some seconds or
//! as sums. [`account`] counts spins exactly. [`run`] is the guest scheduler. [`confine`] also acts
//! against spinning, but leaves the kernel's scheduler in place. [`ab`] compares the guest's work
//! with and without unspin.

/// Prints a line on standard error. If nobody reads it any more, as after `2>&1 | head`, only the
/// line is lost.
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
