//! Integration tests of this crate, in one program.

mod command;
mod microbench;
mod phasebench;
