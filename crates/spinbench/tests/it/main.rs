//! The tests of this crate from outside, in one program.

mod command;
mod microbench;
mod phasebench;
