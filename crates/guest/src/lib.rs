//! The guest's side.
//!
//! [`machine`] gathers what a machine is and works out what that means; [`doctor`]
//! reports it, with what follows for spinning and for curing it. [`sense`] finds the off
//! intervals of this guest's vCPUs while it runs; [`record`] keeps them in a file,
//! [`watch`] for some seconds or as sums. [`account`] counts spins exactly. [`run`] acts: it is
//! the guest scheduler. [`confine`] acts, too, and leaves the kernel's scheduler in place.
//! [`ab`] compares the guest's work with and without the scheduler.

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
