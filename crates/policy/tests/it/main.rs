//! The crate's integration tests, in one program.

mod activity;
mod bandwidth;
mod confine;
mod confine_any;
mod confine_rivals;
mod confine_trials;
mod holders;
mod host;
mod shares;
