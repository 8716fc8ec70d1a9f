//! The decisions of `policy/`, called through the C ABI. They are compiled from the same headers as
//! the kernel's side; the headers explain them.

pub mod activity;
pub mod adaptive_spin;
pub mod bandwidth;
pub mod boost;
pub mod capacity;
pub mod confine;
pub mod handoff;
pub mod host;
pub mod neighbour;
pub mod place;
pub mod share;
pub mod steal_governor;
pub mod topology;
pub mod vnae;
