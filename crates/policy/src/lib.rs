//! The decisions of `policy/`, called as they are compiled into the kernel's side: the
//! same headers, behind the C ABI. The headers say what they mean.

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
